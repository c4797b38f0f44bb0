The table of links: dependants, each with a parent.

--: after
CREATE TABLE IF NOT EXISTS {name}
    (state {letter} NOT NULL DEFAULT '', PRIMARY KEY ({parents}, {parts}), INDEX ({parts}, state, {parents})){engine}
    AS SELECT {keys_as_parents}, {keys_as_parts} FROM {table} LIMIT 0;
