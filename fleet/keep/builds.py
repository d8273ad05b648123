"""Which commands are builds and tests, unless ``fleet.toml`` says otherwise. Plain data: a hook reads it first."""

BUILDS = (
    *("pytest", "unittest", "tox", "nox", "mypy", "pyright", "ruff", "flake8", "pylint", "pre-commit"),
    *("python manage.py test", "python setup.py build"),
    *("make", "cmake --build", "ctest", "ninja", "meson compile", "meson test", "bazel build", "bazel test", "just"),
    *("npm test", "npm build", "npm lint", "npm typecheck", "pnpm test", "pnpm build", "pnpm lint", "pnpm typecheck"),
    *("yarn test", "yarn build", "yarn lint", "yarn typecheck", "bun test", "bun build", "deno test", "deno check"),
    *("tsc", "eslint", "jest", "vitest", "mocha", "playwright test", "cypress run", "vite build", "next build"),
    *("cargo build", "cargo test", "cargo check", "cargo clippy", "cargo nextest", "go build", "go test", "go vet"),
    *(
        "gradle",
        "mvn",
        "ant",
        "sbt",
        "dotnet build",
        "dotnet test",
        "msbuild",
        "swift build",
        "swift test",
        "xcodebuild",
    ),
    *(
        "gcc",
        "g++",
        "clang",
        "clang++",
        "javac",
        "rustc",
        "zig build",
        "zig test",
        "docker build",
        "docker buildx build",
    ),
    *("rspec", "rake", "rails test", "rubocop", "phpunit", "phpstan", "composer test", "mix test", "mix compile"),
)
"""A command is one of them when its words begin like this, after wrappers such as ``sudo`` or ``npx`` are taken off.

``npm run build`` is ``npm build``; ``python -m pytest`` is ``pytest``; ``./gradlew test`` is ``gradle test``.
"""
