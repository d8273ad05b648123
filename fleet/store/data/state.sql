-- The rows that are derived from line files and the fetched tree. A change here is a new SCHEMA_NUMBER in database.py.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL); -- with a rowid: no query reads past a large value
CREATE TABLE file (path TEXT PRIMARY KEY, look TEXT NOT NULL, size INTEGER NOT NULL, hash BLOB NOT NULL,
  oid TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tree (path TEXT PRIMARY KEY, oid TEXT NOT NULL, size INTEGER NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE pattern (rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL, hash BLOB NOT NULL,
  text TEXT NOT NULL, alike TEXT NOT NULL, into_id TEXT NOT NULL, listed INTEGER NOT NULL, published INTEGER NOT NULL,
  retired INTEGER NOT NULL, triggered INTEGER NOT NULL, agents INTEGER NOT NULL, sessions INTEGER NOT NULL,
  seen INTEGER NOT NULL, last TEXT NOT NULL, newest TEXT NOT NULL, ripens TEXT NOT NULL, purges INTEGER NOT NULL,
  used INTEGER NOT NULL, held INTEGER NOT NULL, generation INTEGER NOT NULL);
CREATE INDEX pattern_sight ON pattern (published DESC, seen DESC, last DESC, id) WHERE listed;
CREATE INDEX pattern_evidence ON pattern (published DESC, agents DESC, sessions DESC, seen DESC, last DESC, id)
  WHERE listed AND NOT retired;
CREATE INDEX pattern_alike ON pattern (alike) WHERE alike != '';
CREATE INDEX pattern_into ON pattern (into_id) WHERE into_id != '';
CREATE INDEX pattern_triggered ON pattern (triggered DESC, published DESC, agents DESC, sessions DESC, seen DESC,
  last DESC, id) WHERE triggered AND listed AND NOT retired;
CREATE INDEX pattern_newest ON pattern (newest);
CREATE INDEX pattern_ripens ON pattern (ripens) WHERE ripens != '';
CREATE INDEX pattern_held ON pattern (id) WHERE held;
CREATE INDEX pattern_purges ON pattern (id) WHERE purges;
CREATE INDEX pattern_generation ON pattern (generation, listed, retired);
CREATE INDEX pattern_used ON pattern (id) WHERE listed AND used;
CREATE VIRTUAL TABLE words USING fts5 (text, more, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TABLE discovery (rowid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL, hash BLOB NOT NULL,
  base BLOB, at TEXT NOT NULL, retracts TEXT NOT NULL, generation INTEGER NOT NULL);
CREATE INDEX discovery_at ON discovery (at, id);
CREATE INDEX discovery_retracts ON discovery (retracts) WHERE retracts != '';
CREATE VIRTUAL TABLE found USING fts5 (text, more, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TABLE writer (name TEXT PRIMARY KEY, newest TEXT NOT NULL, ahead TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (id TEXT PRIMARY KEY, base BLOB) WITHOUT ROWID;
CREATE TABLE carried (hash TEXT PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, raw BLOB NOT NULL,
  in_tree INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE purged (hash TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE refused (path TEXT NOT NULL, hash BLOB NOT NULL, number INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (path, hash)) WITHOUT ROWID;
CREATE TABLE vector (id TEXT PRIMARY KEY, model TEXT NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
