-- What this machine alone knows. Values and consents; spans of exposures, kept by reflect.exposure; and who is blocked
-- and what waits, kept by store.trust.
CREATE TABLE IF NOT EXISTS value (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS consent (kind TEXT, value TEXT, at TEXT NOT NULL, PRIMARY KEY (kind, value)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exposure (
  agent TEXT NOT NULL,
  pattern TEXT NOT NULL,
  session TEXT NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  number INTEGER NOT NULL,
  replica TEXT NOT NULL DEFAULT '', -- under which these showings are counted; empty: not yet
  total INTEGER NOT NULL DEFAULT 0, -- how many that replica has counted with them
  said INTEGER NOT NULL DEFAULT 0   -- whether that total is in the shard
);
CREATE TABLE IF NOT EXISTS trust (kind TEXT, name TEXT, id TEXT, value TEXT NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (kind, name, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS exposure_by_pattern ON exposure (agent, pattern, first_ms);
CREATE INDEX IF NOT EXISTS exposure_unsaid ON exposure (agent, first_ms) WHERE said = 0;
