The table of groups.

--: group
CREATE TABLE IF NOT EXISTS {name}
    (name TEXT PRIMARY KEY, total INTEGER NOT NULL, killed INTEGER NOT NULL, opened REAL NOT NULL, done REAL,
    sealed INTEGER NOT NULL, runs INTEGER NOT NULL, then_sql TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {name_open} ON {plain_name} (name) WHERE done IS NULL;
