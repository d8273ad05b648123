"""The words that matching knows: what says nothing, what says the same, what turns a sentence round.

Data only. Words stand here in any form: they are compared by their stems (``wording.stem``). No list of opposites is
ever complete: ``contrasts`` therefore also takes a single exchanged word for a difference, listed or not.
"""

# ruff: noqa: SIM905 - a text of words is easier to read, and to add to, than a list of 200 strings

STOP = frozenset(
    "a an the of in on at by for from to into onto with within and or as is are was were be been being am it its this "
    "that these those they them their there here has have had having do does did will would can could may might shall "
    "your you we our us i my me he she his her so such very just also too even still then than about which who whom "
    "whose s t re ll ve d m let lets etc via per up out again own itself themselves yourself one ones some any "
    "somewhere somebody someone nobody anybody however".split()
)
"""Words that carry no lesson. Those that turn one round stand in ``NEGATORS``, whatever else they are."""

LIGHT = frozenset(
    "use using used always every each all both must should need needs ought make makes made keep keeps get gets set "
    "sets put puts give gives take takes go goes come want wants ensure sure please only prefer require requires "
    "belong belongs proper properly way ways thing things case cases what how why where when whether if because since "
    "whatever whenever while until unless already possible recommended own new whole entire exactly explicitly now "
    "later often usually simply well good better best first-class right start begin many much more most".split()
)
"""Words that most lessons have: they weigh little."""

SAID_EITHER_WAY = frozenset(
    "a an the this that these those any some your our my its their his we you i us me he she it they them him who "
    "which whom whose is are was were be been being am does did has had have having do will would shall very just also "
    "too even still then so such please really simply well itself themselves yourself s t re ll ve d m".split()
)
"""Of two texts, one may have more of these than the other, and mean the same."""

SMALL_SYNONYMS = (
    "in on at for of by within with per via through to into onto as inside",
    "must should need needs ought shall have always require requires required",
    "may might can could let lets possible",
    "every each all both any always whole entire complete full",
    "use using used take takes run apply employ adopt choose pick prefer call try want",
    "when whenever if once while where",
    "after once afterwards",
    "after when",
    "during while when",
    "make makes ensure sure get gets keep keeps",
    "make makes create build",
    "put puts set sets give gives place",
    "go goes move",
    "start begin",
    "often usually",
    "many much several",
    "best better good recommended",
    "proper properly right well",
    "case cases thing things way ways",
    "get gets take takes receive fetch",
    "because since as so",
    "though although but",
    "else otherwise",
    "until till",
    "里 中 内 里面 当中",
    "时 时候 后 就",
)
"""Words of ``STOP``, ``LIGHT`` and ``BOUNDARIES`` that do in each other's place; any other exchange of one, in texts
that are the same otherwise, makes another lesson: up and down, keep and release, always and sometimes.
"""

CONNECTORS = frozenset("before after once while during until till unless if when whenever since".split())
SMALL_OPPOSITES = (
    ("in", "out"),
    ("on", "off"),
    ("over", "under"),
    ("up", "down"),
    ("here", "there"),
    ("get", "set"),
    ("give", "take"),
    ("now", "later"),
    ("keep", "break breach violate lose let permit"),
    ("make", "break destroy"),
    ("good", "bad poor evil"),
    ("many much", "few little fewer"),
    ("have has", "lack miss"),
    ("everything everybody everyone somebody someone something anything", "nothing nobody"),
    ("come get", "leave lose"),
    ("start begin", "complete"),
)
"""Words that weigh little and turn a lesson round wherever in it they stand, if the rest is the same."""

NEGATORS = frozenset(
    "not never no none nor neither without cannot cant dont doesnt didnt isnt arent wasnt werent wont wouldnt "
    "shouldnt mustnt neednt couldnt havent hasnt nothing nowhere hardly rarely seldom except".split()
)
"""What follows, up to the end of the clause, is meant the other way."""

NEGATIVE_VERBS = frozenset(
    "avoid disable forbid prohibit ban disallow deny exclude omit ignore skip refuse reject forget discourage drop "
    "prevent".split()
)
"""Verbs whose object is what shall not be."""

NEGATED_PHRASES = (
    ("instead", "of"),
    ("rather", "than"),
    ("in", "place", "of"),
    ("in", "lieu", "of"),
    ("refrain", "from"),
    ("no", "longer"),
    ("free", "of"),
    ("other", "than"),
)
CHOOSING = frozenset("prefer choose pick favour favor use using take".split())
PERMITTING = frozenset("allowed permitted recommended acceptable okay ok fine possible supported good".split())
"""After one of these, "over" and "to" say what is not chosen: "prefer awk over sed"."""

CONDEMNING = frozenset(
    "harmful bad wrong dangerous unsafe deprecated forbidden prohibited useless banned discouraged insecure mistake "
    "antipattern unacceptable unneeded unnecessary".split()
)
"""A clause that says this of something says not to do it."""

AUXILIARIES = frozenset(
    "must should shall may might can could will would do does did is are was were be has have had need".split()
)
"""A "not" behind one of these negates the whole clause, its subject too: "a tag must not be moved"."""

BOUNDARIES = frozenset(
    "because since so but if when although though where whereas else otherwise then unless until as".split()
)
"""Words that begin another clause, as a comma does."""

EXCEPTING = frozenset("without except".split())
"""Behind a negation these take it back: "never deploy without tests"."""

SYNONYMS = (
    "abort cancel",
    "accept approve",
    "append add",
    "application app",
    "argument parameter arg param",
    "artefact artifact",
    "ask consult inquire",
    "assert verify check test ensure confirm validate",
    "atomic atomically",
    "authentication login logon signin",
    "await wait poll",
    "backoff back-off",
    "backtick backquote",
    "build construct compile",
    "bump increase increment raise grow",
    "change modify alter edit adjust mutate",
    "checkpoint savepoint",
    "choose pick select",
    "clean clear purge delete remove erase wipe cleanup leftover",
    "colour color",
    "command instruction statement",
    "commit checkin",
    "complete finish done",
    "concat concatenate interpolate interpolation splice inline",
    "config configuration setting settings",
    "convert transform translate",
    "crash die dead fail failure break",
    "create generate produce mint",
    "credential secret token",
    "database db",
    "debug troubleshoot diagnose",
    "delay sleep pause",
    "dependency package library module",
    "deploy rollout release ship deployment publish",
    "developer engineer programmer",
    "digest hash sha checksum",
    "directory folder",
    "display show render print",
    "documentation docs doc manual",
    "dump export",
    "duration elapsed",
    "empty blank",
    "env environment",
    "error exception failure",
    "escape encode quote",
    "fast quick quickly speedy",
    "fix repair mend",
    "folder dir",
    "function method routine",
    "guess assume presume invent",
    "idempotent rerun",
    "image picture",
    "immutable constant frozen",
    "incompatible breaking break",
    "issue ticket",
    "job task step process",
    "journal log",
    "large big huge",
    "latest newest",
    "leak expose disclose",
    "least minimum minimal lowest min",
    "limit cap restrict bound",
    "line row record",
    "lint linter",
    "local locally",
    "lockfile lock-file",
    "maximum max most",
    "minimise minimize reduce",
    "move relocate rename",
    "network http",
    "number count",
    "obey follow respect honour honor",
    "old stale outdated out-of-date",
    "order sequence",
    "permission privilege right access",
    "person human people",
    "pin lock freeze",
    "prod production",
    "property attribute field",
    "push upload",
    "query lookup",
    "readable legible",
    "refer reference",
    "repeat retry rerun",
    "repo repository",
    "reproduce recreate replicate",
    "request call",
    "result output answer response",
    "review inspect audit",
    "revoke rotate invalidate renew regenerate reissue",
    "rewrite reimplement port",
    "run execute invoke launch call",
    "sanitize sanitise",
    "save store persist",
    "script program",
    "separate split divide",
    "server backend",
    "short small little brief",
    "similar alike close",
    "single sole",
    "small tiny",
    "stop halt end terminate kill",
    "string text",
    "suite test",
    "temp temporary tmp",
    "together jointly",
    "trust rely believe",
    "unique stable distinct",
    "update upgrade",
    "user person customer",
    "variable var",
    "version release",
    "warn warning",
    "look read see consult",
    "shared public",
    "issue renew",
    "merge combine",
    "gradually incrementally progressively stepwise",
    "silently quietly",
    "postgres postgresql pg",
    "kubernetes k8s",
    "javascript js",
    "typescript ts",
    "golang go",
    "python py",
    "mongo mongodb",
    "gha github-actions",
    "allow permit let",
    "approval consent approve",
    "attempt try",
    "begin start",
    "cause reason",
    "collect gather",
    "contain hold include carry have",
    "copy duplicate clone",
    "critical crucial important vital",
    "detect find discover identify locate",
    "ensure guarantee",
    "example sample",
    "expire lapse expiry expiration",
    "feature functionality",
    "fetch retrieve obtain download load",
    "fixed static constant",
    "hand pass supply provide give",
    "hide conceal",
    "interval period",
    "lifetime ttl",
    "machine computer",
    "measure benchmark profile",
    "mistake error bug defect fault",
    "monitor watch observe",
    "needless unnecessary unneeded superfluous",
    "occur happen arise",
    "own isolated separate",
    "owner maintainer",
    "page document",
    "part piece section chunk",
    "prevent avoid",
    "receive accept take",
    "remain stay keep",
    "replace substitute swap",
    "rule policy",
    "say tell state report mention",
    "schedule plan",
    "select choose pick",
    "send pass transmit forward",
    "specify name reference declare state",
    "spec test",
    "team group",
    "untrusted user-provided external",
    "visible shown",
    "wrong incorrect faulty broken",
    "empty vacant",
    "careful carefully cautious",
    "danger risk hazard",
    "enough sufficient",
    "entire complete whole full",
    "guess hunch",
    "keep retain preserve",
    "layout structure arrangement",
    "manual by-hand hand",
    "note comment remark",
    "permanent permanently forever",
    "proof evidence",
    "random arbitrary",
    "rebuild recreate regenerate",
    "reduce lower decrease shrink",
    "safe secure",
    "same identical equal equality",
    "simple plain easy",
    "skip omit leave",
    "slow sluggish",
    "sort order",
    "stay remain",
    "total sum",
    "useless pointless",
    "value content",
    "verify confirm check",
    # Chinese
    "使用 用 采用 利用",
    "重命名 改名",
    "删除 清理 移除 清除 删掉",
    "停止 停掉 停下 关掉",
    "运行 跑 执行",
    "重装 重新安装",
    "代码 源码 源代码",
    "仓库 代码库",
    "密钥 秘钥 私钥 凭证 token",
    "检查 查看 确认",
    "写入 写 写到",
    "增加 添加 加",
    "修改 改动 更改 改",
    "任务 作业",
    "依赖 依靠",
    "顺序 次序",
    "创建 建立 新建 生成",
    "测试 用例",
    "中断 断掉 停掉",
    "断开 掉线",
    "表示 存储",
    "捕获 抓住",
    "处理 应对",
    "收到 遇到",
    "请求 调用",
)
"""Words that people use for one another in lessons. A word may stand in several groups."""

PHRASES = {
    ("check", "in"): "commit",
    ("environment", "variable"): "env",
    ("read", "only"): "readonly",
    ("read", "write"): "readwrite",
    ("self", "hosted"): "selfhosted",
    ("turn", "on"): "enable",
    ("switch", "on"): "enable",
    ("turn", "off"): "disable",
    ("switch", "off"): "disable",
    ("time", "out"): "timeout",
    ("third", "party"): "external",
    ("back", "off"): "backoff",
    ("roll", "out"): "rollout",
    ("roll", "back"): "rollback",
    ("out", "of", "date"): "stale",
    ("log", "in"): "login",
    ("logs", "in"): "login",
    ("hard", "coded"): "fixed",
    ("shut", "down"): "stop",
    ("look", "up"): "read",
    ("look", "at"): "read",
    ("least", "privilege"): "minimum permission",
}
"""Words that mean something else together."""

OPPOSITES = (
    ("enable", "disable"),
    ("allow permit enable", "deny forbid disallow prohibit ban block refuse"),
    ("first", "last"),
    ("increase raise grow bump", "decrease lower reduce shrink"),
    ("add append insert attach", "remove delete drop strip detach"),
    ("inside within", "outside"),
    ("true", "false"),
    ("left", "right"),
    ("read", "write"),
    ("reader", "writer"),
    ("maximum most max", "minimum least min"),
    ("upper", "lower"),
    ("above", "below under beneath"),
    ("ascending", "descending"),
    ("more", "less fewer"),
    ("newer newest latest", "older oldest earliest"),
    ("new", "old"),
    ("public", "private"),
    ("client", "server"),
    ("input", "output"),
    ("source", "target destination"),
    ("sync synchronous", "async asynchronous"),
    ("include", "exclude omit"),
    ("accept approve", "reject refuse"),
    ("open", "close closed"),
    ("start begin", "stop end"),
    ("push", "pull"),
    ("upgrade", "downgrade"),
    ("positive", "negative"),
    ("success succeed pass", "failure fail"),
    ("required mandatory", "optional"),
    ("generic general", "specific"),
    ("one single", "many multiple several"),
    ("all every", "none"),
    ("major", "minor"),
    ("short small", "long large big"),
    ("fast quick", "slow"),
    ("early", "late"),
    ("local", "remote global"),
    ("internal", "external"),
    ("static", "dynamic"),
    ("strict", "loose lenient"),
    ("explicit", "implicit"),
    ("encode", "decode"),
    ("encrypt", "decrypt"),
    ("compress", "decompress"),
    ("lock", "unlock"),
    ("connect", "disconnect"),
    ("mount", "unmount"),
    ("install", "uninstall"),
    ("merge combine mix join", "separate split"),
    ("serial sequential", "parallel concurrent"),
    ("top", "bottom"),
    ("host", "guest"),
    ("manual manually hand", "automatic automatically"),
    ("safe", "unsafe dangerous"),
    ("hot", "cold"),
    ("empty", "full"),
    ("(on)", "off"),
    ("eager eagerly", "lazy lazily"),
    ("import", "export"),
    ("binary", "text"),
    ("ephemeral temporary", "permanent"),
    ("commit", "ignore"),
    ("trusted", "untrusted"),
    ("stdout", "stderr"),
    ("upload", "download"),
    ("show", "hide"),
    ("keep retain preserve", "discard reset release evict purge delete remove drop"),
    ("acquire obtain take", "release"),
    ("always", "sometimes occasionally rarely seldom"),
    ("best", "worst"),
    ("better", "worse"),
    ("begin start", "finish"),
    ("exact exactly", "approximate approximately roughly"),
    ("whole complete", "partial partially"),
    ("up upward upwards", "down downward downwards"),
    ("coarse", "fine"),
    ("shallow", "deep"),
    ("vertical", "horizontal"),
    ("odd", "even"),
    ("blacklist denylist", "whitelist allowlist"),
    ("send", "receive"),
    ("borrow", "lend own"),
    ("load", "unload"),
    ("fill", "drain"),
    ("freeze", "thaw unfreeze"),
    ("expose reveal show", "hide conceal mask suppress"),
    ("throw raise", "catch swallow"),
    ("pack wrap", "unpack unwrap"),
    ("publish", "retract withdraw"),
    ("create", "destroy"),
    ("preserve", "destroy overwrite"),
    ("reuse", "recreate discard"),
    ("resume continue", "pause suspend abort stop"),
    ("commit", "abort rollback revert"),
    ("apply", "revert undo"),
    ("accept approve", "decline"),
    ("grant", "revoke deny withdraw"),
    ("expand extend lengthen widen", "collapse shrink shorten truncate narrow"),
    ("inflate", "deflate"),
    ("rise", "fall"),
    ("win gain", "lose"),
    ("push enqueue", "pop dequeue"),
    ("mount", "eject"),
    ("enter join arrive", "leave exit depart"),
    ("advance", "retreat"),
    ("ascend climb", "descend"),
    ("attract", "repel"),
    ("encourage praise love like", "discourage blame hate dislike"),
    ("protect", "expose"),
    ("sharpen", "blur"),
    ("simplify", "complicate"),
    ("accelerate", "decelerate"),
    ("strengthen", "weaken"),
    ("tighten", "loosen relax"),
    ("unite", "divide"),
    ("indent", "dedent"),
    ("wake", "sleep"),
    ("warm heat", "cool"),
    ("boot", "shutdown"),
    ("leader", "follower"),
    ("teach", "learn"),
    ("reserve allocate", "release free"),
    ("escalate", "deescalate"),
    ("buy", "sell"),
    ("mocked fake", "real"),
    ("high", "low"),
    ("wide broad", "narrow"),
    ("thick", "thin"),
    ("tight", "loose"),
    ("strong", "weak"),
    ("difficult", "easy"),
    ("rich", "poor"),
    ("rough", "smooth"),
    ("precise", "rough approximate"),
    ("clear transparent", "obscure vague opaque"),
    ("active", "passive inactive idle"),
    ("busy", "idle"),
    ("online", "offline"),
    ("upstream", "downstream"),
    ("forward forwards", "backward backwards reverse"),
    ("primary", "secondary replica standby"),
    ("master leader", "replica follower"),
    ("absolute", "relative"),
    ("abstract", "concrete"),
    ("actual", "expected"),
    ("live", "dead"),
    ("alive", "dead"),
    ("fresh", "stale cached"),
    ("current", "previous stale"),
    ("next following", "previous preceding"),
    ("former", "latter"),
    ("persistent durable", "transient ephemeral volatile"),
    ("constant", "variable"),
    ("random", "deterministic sequential"),
    ("central centralised centralized", "distributed decentralised decentralized"),
    ("shared", "exclusive private dedicated"),
    ("frequent", "rare"),
    ("visible", "hidden invisible"),
    ("present", "absent"),
    ("cheap", "expensive"),
    ("simple", "complex complicated"),
    ("flat", "nested"),
    ("inner inbound incoming ingress inward", "outer outbound outgoing egress outward"),
    ("front", "back rear"),
    ("near closest nearest", "far farthest furthest"),
    ("ancient old", "modern young"),
    ("day", "night"),
    ("north", "south"),
    ("east", "west"),
    ("lowercase", "uppercase capital"),
    ("singular", "plural"),
    ("big huge", "little tiny"),
    ("maximal", "minimal"),
    ("known", "unknown"),
    ("stable", "experimental beta nightly alpha"),
    ("full total", "partial incremental differential"),
    ("strict rigid", "permissive flexible"),
    ("verbose noisy loud", "quiet terse silent"),
    ("anonymous", "authenticated"),
    ("encrypted", "plaintext"),
    ("compressed", "raw"),
    ("raw", "cooked"),
    ("compiled", "interpreted"),
    ("dense", "sparse"),
    ("greedy", "lazy"),
    ("optimistic", "pessimistic"),
    ("single", "double"),
    ("first initial", "final"),
    ("black", "white"),
    ("blue red", "green"),
    ("production", "staging development"),
    ("readonly", "writable readwrite"),
    ("manual", "scripted automated"),
    ("mobile", "desktop"),
    ("wired", "wireless"),
    ("specific", "broad"),
    ("nullable", "required"),
    ("ahead", "behind"),
    ("once", "repeatedly twice"),
    ("immediately now", "later"),
    ("sooner", "later"),
    ("often usually", "rarely seldom"),
    ("together jointly", "separately"),
    ("clockwise", "counterclockwise anticlockwise"),
    ("hosted", "selfhosted"),
    # Chinese
    ("启用 开启 打开 启动", "禁用 关闭 停用"),
    ("允许 可以", "禁止 不允许"),
    ("增加 添加 增大 提高", "减少 减小 降低 删除 移除"),
    ("总是 始终 一定", "从不 绝不"),
    ("同步", "异步"),
    ("读取 读", "写入 写"),
    ("最大 最多 至多", "最小 最少 至少"),
    ("以上 超过 高于 大于", "以下 低于 小于 不足"),
    ("内部 里面", "外部 外面"),
    ("左", "右"),
    ("真", "假"),
    ("升级", "降级"),
    ("升序", "降序"),
    ("全角", "半角"),
    ("公开", "私有"),
    ("手动", "自动"),
    ("新", "旧"),
    ("客户端", "服务端 服务器"),
    ("成功", "失败"),
    ("加锁", "解锁"),
    ("显式", "隐式"),
    ("串行", "并行 并发"),
    ("第一 首先", "最后"),
)

TOOLS = frozenset(
    "npm pnpm yarn bun deno node pip pipx uv poetry conda pytest unittest nose jest vitest mocha jasmine cypress "
    "playwright selenium git svn hg mercurial docker podman kubectl helm kustomize make cmake bazel ninja meson "
    "gradle maven gcc clang awk gawk sed perl grep ripgrep rg ag find fd curl wget httpie bash zsh sh fish ksh dash "
    "vim emacs nano postgres postgresql mysql mariadb sqlite redis memcached mongo mongodb kafka rabbitmq nats sqs "
    "json yaml toml xml ini csv tsv http https ssh ftp sftp telnet tcp udp aws gcp azure s3 terraform pulumi ansible "
    "puppet chef react vue angular svelte webpack vite rollup esbuild parcel eslint prettier biome ruff black flake8 "
    "pylint mypy pyright linux macos windows ubuntu debian alpine fedora java kotlin scala rust golang python ruby "
    "php javascript typescript swift tabs spaces md5 sha1 sha256 argon2 argon2id bcrypt scrypt pbkdf2 rebase squash "
    "cherry-pick tmux screen nginx apache caddy systemd cron supervisor jq yq requests httpx aiohttp urllib threads "
    "processes mutex semaphore pull_request rest graphql grpc vacuum analyze entrypoint cmd put patch post get "
    "statefulset deployment daemonset feat chore utf gbk latin xargs tar zip gzip brotli zstd".split()
)
"""Names that one cannot take for another. Most tools are in no list: an exchanged word tells them apart."""

NUMBER_WORDS = {
    "zero": 0, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "ninety": 90, "hundred": 100, "thousand": 1000, "million": 1_000_000, "dozen": 12, "twice": 2,
    "thrice": 3, "third": 3, "fourth": 4, "fifth": 5,
}  # fmt: skip

UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "毫秒"), ("s", 0.001)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒"), ("s", 1)),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分", "分钟"), ("s", 60)),
    **dict.fromkeys(("h", "hour", "hours", "小时"), ("s", 3600)),
    **dict.fromkeys(("d", "day", "days", "天", "日"), ("s", 86_400)),
    **dict.fromkeys(("week", "weeks", "周"), ("s", 604_800)),
    **dict.fromkeys(("kb", "kib"), ("b", 1024)),
    **dict.fromkeys(("mb", "mib"), ("b", 1024**2)),
    **dict.fromkeys(("gb", "gib"), ("b", 1024**3)),
    **dict.fromkeys(("byte", "bytes", "字节"), ("b", 1)),
    **dict.fromkeys(("%", "percent"), ("%", 1)),
    **dict.fromkeys(("time", "times", "retry", "retries", "attempt", "attempts", "次", "遍"), ("times", 1)),
}
"""A unit, the quantity it measures, and how much of it one is."""

CJK_NEGATORS = tuple(
    "不要 不得 不能 不应该 不应 不可以 不可 不允许 不用 不是 不会 不准 请勿 切勿 勿 别 禁止 严禁 "
    "避免 没有 无需 而不是 而非 不再 从不 绝不 不 未 无 非".split()
)
CJK_NOT_NEGATORS = tuple(
    "不同 不仅 不断 不过 不足 类别 级别 区别 分别 识别 特别 别名 别人 无论 非常 未来 除非 不超过 "
    "不多于 不少于 不低于".split()
)
"""Words that hold a negator and are none; those with a measure behind them are a limit."""

CJK_LIGHT = tuple(
    "使用 采用 利用 用 必须 需要 应该 应当 应 需 要 每 每个 都 总是 直接 什么都 时候 时 进行 可以 一定".split()
)
CJK_STOP = tuple(
    "的 了 在 里 中 和 与 或 是 把 将 对 从 向 到 为 这样 也 就 却 会 得 地 着 给 让 被 "
    "以 及 并 而 那 这 之间 之 个 上 下 其 则".split()
)
CJK_WORDS = tuple(
    "临时文件 文件 共享 原子 缓存 过期 生效 任务 长时间 服务 残留 本地 用户 数据库 主键 线程池 "
    "集合 元素 循环 异常 金额 浮点数 字段 外键 约束 行数 字符 字符数 方法 中文 英文 空格 标点 "
    "数字 脚本 插值 批量 限流 超时 语音 编码 虚拟环境 磁盘 空间 冲突 设置 代理 内存 占用 匿名 "
    "访问 日志 保留 部署 备份 安装 配置 放弃 重试 提交 更新 内容 安全 权限 接口 参数 变量 版本 "
    "分支 合并 推送 拉取 发布 回滚 密码 加密".split()
)
CJK_MEASURES = "次秒分小天个行层位倍遍轮条周月年级张台份步种项人页字"
