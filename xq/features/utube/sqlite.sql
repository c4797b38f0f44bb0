The table of group heads.

--: heads
CREATE TABLE IF NOT EXISTS {name}
    ({typed_heads}, taken INTEGER NOT NULL CHECK (taken <= most), most INTEGER NOT NULL, n INTEGER NOT NULL,
--? fair
    served INTEGER NOT NULL DEFAULT 0,
--? end
    PRIMARY KEY (utube)) WITHOUT ROWID;
--? fair
-- For the greatest of all: a head that is not open may have it.
CREATE INDEX IF NOT EXISTS {served} ON {heads} (served);
--? end
CREATE INDEX IF NOT EXISTS {open} ON {heads} ({columns}) WHERE {is_open};
