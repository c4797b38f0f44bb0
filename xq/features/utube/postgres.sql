The tables of group heads and of dirty ones, and how triggers keep them.

--: heads
CREATE TABLE IF NOT EXISTS {name} AS
    SELECT {utube} AS utube, CAST(0 AS bigint) AS taken, CAST(0 AS bigint) AS most, {ordered_as_columns}
    FROM {table} WITH NO DATA;
--? fair
ALTER TABLE {name} ADD COLUMN IF NOT EXISTS served bigint NOT NULL DEFAULT 0;
--? end
CREATE UNIQUE INDEX IF NOT EXISTS {name_key} ON {name} (utube);
CREATE INDEX IF NOT EXISTS {name_open} ON {name} ({order}) WHERE {is_open};
ALTER TABLE {name}
    ADD COLUMN IF NOT EXISTS n bigint NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS version bigint NOT NULL DEFAULT 0;
ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {name_most};
ALTER TABLE {name} ADD CONSTRAINT {name_most} CHECK (taken <= most);
ALTER TABLE {name} ALTER COLUMN taken SET NOT NULL, ALTER COLUMN most SET NOT NULL, ALTER COLUMN most SET DEFAULT 0;
ALTER TABLE {name} REPLICA IDENTITY FULL;
-- Its rows are replaced all the time; a page has room for their other versions.
ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

--: dirty_groups
CREATE TABLE IF NOT EXISTS {name} AS SELECT {utube} AS utube FROM {table} WITH NO DATA;
ALTER TABLE {name}
    ADD COLUMN IF NOT EXISTS id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ADD COLUMN IF NOT EXISTS writer xid8;
-- Its rows are replaced all the time.
ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

--: insert
DECLARE
    xq_new record;
BEGIN
    FOR xq_new IN WITH xq_c AS MATERIALIZED (
        SELECT utube, SUM(taken) AS taken FROM (
            SELECT {new_utube} AS utube, (CASE WHEN {is_taken} THEN 1 ELSE 0 END) AS taken
            FROM changed WHERE {is_in_group}
        ) AS xq_e GROUP BY 1
    ),
    {write}
END;

--: delete
DECLARE
    xq_new record;
BEGIN
    FOR xq_new IN WITH xq_c AS MATERIALIZED (
        SELECT utube, SUM(taken) AS taken FROM (
            SELECT {old_utube} AS utube, -(CASE WHEN {was_taken} THEN 1 ELSE 0 END) AS taken
            FROM changed WHERE {was_in_group}
        ) AS xq_e GROUP BY 1
    ),
    {write}
END;

--: truncate
DELETE FROM {heads};
DELETE FROM {dirty_groups};

--: update
-- For the groups of all rows of an update. Row by row, each change of a head would leave a version of it that the next
-- one must step over.
DECLARE
    xq_new record;
--? history
    event_name text := {event};
    at_us bigint := {at};
--? end
BEGIN
    -- The rows that differ, as far as groups are concerned. This is no join: one that is planned for a single row may
    -- compare every row with every other.
    FOR xq_new IN WITH xq_c AS MATERIALIZED (
        SELECT utube, SUM(taken) AS taken FROM (
            SELECT {old_utube} AS utube, -(CASE WHEN {was_taken} THEN 1 ELSE 0 END) AS taken
            FROM (SELECT {watched} FROM was EXCEPT SELECT {watched} FROM became) AS was
            WHERE {was_in_group}
            UNION ALL
            SELECT {new_utube} AS utube, (CASE WHEN {is_taken} THEN 1 ELSE 0 END) AS taken
            FROM (SELECT {watched} FROM became EXCEPT SELECT {watched} FROM was) AS became
            WHERE {is_in_group}
        ) AS xq_e GROUP BY 1
    ),
    {write}
    RETURN NULL;
END

--: write
-- Writes each head once, however many rows of its group there are, and in the order of utubes, which avoids deadlocks.
xq_counted AS (
--? fair
    INSERT INTO {heads} (utube, taken, most, served)
        SELECT utube, taken, taken, CASE WHEN taken > 0 THEN {now_served} ELSE 0 END
        FROM xq_c WHERE taken <> 0 ORDER BY 1{adding}
--? not fair
    INSERT INTO {heads} (utube, taken, most) SELECT utube, taken, taken FROM xq_c WHERE taken <> 0 ORDER BY 1{adding}
--? end
    RETURNING utube, taken < most AS has_room, n = 0 AS is_new
),
-- The head of a full group needs no first task.
xq_marked AS (
    INSERT INTO {dirty_groups} (utube, writer) SELECT DISTINCT utube, pg_current_xact_id() FROM xq_c
        WHERE taken <= 0 OR utube IN (SELECT utube FROM xq_counted WHERE has_room OR is_new)
)
SELECT utube FROM xq_counted WHERE is_new LOOP
    -- Takes have made a head before. Its limit is read here alone, since a statement is slower by each query that it has.
    UPDATE {heads} AS xq_h SET n = {limit}, most = {limit} WHERE xq_h.utube = xq_new.utube;
END LOOP;
