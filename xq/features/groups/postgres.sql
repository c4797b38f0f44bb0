The table of groups, and what the triggers do when a member ends, in PL/pgSQL.

--: group
CREATE TABLE IF NOT EXISTS {name}
    (name text PRIMARY KEY, total bigint NOT NULL, killed bigint NOT NULL, opened float8 NOT NULL, done float8,
    sealed integer NOT NULL, runs integer NOT NULL, then_sql text);
CREATE INDEX IF NOT EXISTS {name_open} ON {name} (name) WHERE done IS NULL;

--: update
IF ({was_unfinished} AND NOT {is_live} AND NOT ({is_unfinished} AND NOT {was_live})) THEN
    PERFORM {settle}({old_group}, CASE WHEN {new} = 'X' AND {event_name} <> 'ack' THEN 1 ELSE 0 END);
END IF;

--: delete
PERFORM {settle}(xq_name, xq_lost) FROM (
    SELECT {old_group} AS xq_name, CASE WHEN {event_name} <> 'ack' THEN COUNT(*) ELSE 0 END AS xq_lost
    FROM changed WHERE {was_unfinished} GROUP BY 1 ORDER BY 1
) AS xq_ended;

--: truncate
DELETE FROM {group} WHERE done IS NULL;

--: settle
CREATE OR REPLACE FUNCTION {settle}(xq_name text, xq_lost bigint) RETURNS {group} LANGUAGE plpgsql AS {body}

--: settle_body
-- Ends a group if the last of its members has ended. Counts those that went otherwise than by an ack. Returns the
-- group; without `done`, and with the error in `then_sql`, if that failed; else NULL.
DECLARE
    xq_row {group};
    xq_put bigint;
    xq_context text := COALESCE(current_setting('xq.context', true), '');
BEGIN
    IF (xq_lost > 0) THEN
        UPDATE {group} SET killed = killed + xq_lost WHERE name = xq_name;
    END IF;
    -- If many members are left, one of their ends sees to it. The index is read from its far end: what has ended lies
    -- before, and stays there until a vacuum.
    IF (NOT EXISTS (SELECT 1 FROM {group} WHERE name = xq_name AND sealed = 1 AND done IS NULL)
        OR (SELECT COUNT(*) FROM (
            SELECT 1 FROM {table} WHERE {of_name} AND {live} ORDER BY {keys_down} LIMIT {few} + 1
        ) AS xq_few) > {few}
    ) THEN
        RETURN NULL;
    END IF;
    -- The last members may end at once, and none sees the others' ends before their commits: so one after the other.
    SELECT * INTO xq_row FROM {group} WHERE name = xq_name AND sealed = 1 AND done IS NULL FOR NO KEY UPDATE;
    IF (NOT FOUND) THEN
        RETURN NULL;
    END IF;
    IF (NOT ({has_ended})) THEN
        RETURN NULL;
    END IF;
    BEGIN
        UPDATE {group} SET done = {now} WHERE name = xq_name RETURNING * INTO xq_row;
        IF (xq_row.then_sql IS NOT NULL) THEN
            EXECUTE xq_row.then_sql;
            GET DIAGNOSTICS xq_put = ROW_COUNT;
            IF (xq_put = 0) THEN
                -- The maintenance ends the group, and logs it.
                RAISE EXCEPTION USING MESSAGE = {skipped};
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        -- The end of the member stands, and the maintenance tries again.
        xq_row.done := NULL;
        xq_row.then_sql := SQLERRM;
    END;
    PERFORM set_config('xq.context', xq_context, true);
    RETURN xq_row;
END
