The tables of a queue beside the application's. {parts} are the columns of its key as k0, k1 ..

--: count
CREATE TABLE IF NOT EXISTS {name}
    (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;
--? not history_counts
DELETE FROM {name} WHERE {is_mark};

--: wait
CREATE TABLE IF NOT EXISTS {name}
    ({typed_parts}, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT,
    PRIMARY KEY ({parts}, waiter)) WITHOUT ROWID;

--: history
-- No index but the ids: another costs more than the rows do. AUTOINCREMENT, too, would write a page more in each
-- transaction, a tenth of all; that ids are not used twice follows from the newest row, which stays.
CREATE TABLE IF NOT EXISTS {name}
    (id INTEGER PRIMARY KEY, at_us INTEGER, key TEXT, tube TEXT, source TEXT, target TEXT, event TEXT, owner TEXT,
    attempt INTEGER, actor TEXT, reason TEXT);
--? history_counts
-- The counters have the rows of the history up to this id.
INSERT INTO {count} SELECT '', '', '', COALESCE(MAX(id), 0) FROM {name} WHERE TRUE ON CONFLICT DO NOTHING;

--: limit
CREATE TABLE IF NOT EXISTS {name}
    (feature TEXT, value TEXT, is_set INTEGER, label TEXT, n INTEGER NOT NULL, slack INTEGER NOT NULL,
    given TEXT NOT NULL, since_us INTEGER, actor TEXT, reason TEXT, PRIMARY KEY (feature, value, is_set)) WITHOUT ROWID;
