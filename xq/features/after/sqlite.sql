The table of links: dependants, each with a parent.

--: after
CREATE TABLE IF NOT EXISTS {name}
    ({typed_parents}, {typed_parts}, state TEXT NOT NULL, PRIMARY KEY ({parents}, {parts})) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {name_open} ON {plain_name} ({parts}, state, {parents});
