The table of links, and what the triggers do when a parent ends, in PL/pgSQL.

--: after
CREATE TABLE IF NOT EXISTS {name} AS
    SELECT {keys_as_parents}, {keys_as_parts}, CAST('' AS text) AS state FROM {table} WITH NO DATA;
CREATE UNIQUE INDEX IF NOT EXISTS {name_key} ON {name} ({parents}, {parts});
CREATE INDEX IF NOT EXISTS {name_open} ON {name} ({parts}, state, {parents});
ALTER TABLE {name} REPLICA IDENTITY FULL;
ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

--: truncate
DELETE FROM {after};

--: update_after
CREATE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW WHEN ({may_end} OR {leaves}) EXECUTE FUNCTION {function}

--: delete_after
CREATE TRIGGER {name} AFTER DELETE ON {table} REFERENCING OLD TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION {function}

--: after_body
-- Keeps the links of dependants to their parents, and settles each dependant of a parent that has ended. {ends} are the
-- keys of the tasks that may have ended, how they did, and whether they no longer wait themselves.
DECLARE
    xq_before text := COALESCE(current_setting('xq.context', true), '');
    xq_context text := {context};
    xq_now float8 := {time};
    xq_child record;
    xq_how text;
    xq_failed boolean;
BEGIN
    DELETE FROM {after} AS xq_l USING ({ends}) AS xq_e WHERE xq_e.leaves AND {is_child};
    FOR xq_child IN
        WITH marked AS (
            UPDATE {after} AS xq_l SET state = xq_e.ended FROM ({ends}) AS xq_e
            WHERE {is_parent} AND xq_l.state IN ('', 'B') AND xq_l.state <> xq_e.ended RETURNING xq_l.*
        )
        SELECT {parts}, bool_or(state <> 'D') AS failed FROM marked WHERE state <> '' GROUP BY {parts} ORDER BY {parts}
    LOOP
        -- While many parents have not ended, others come by here later. Of the last, each could see the others
        -- unfinished: they lock the dependant, and look again. From the far end of the index, since the near one is
        -- full of dead entries.
        CONTINUE WHEN NOT xq_child.failed AND (SELECT COUNT(*) FROM (
            SELECT 1 FROM {after} WHERE {its_link} AND state = '' ORDER BY {from_far} LIMIT 33
        ) AS xq_open) > 32;
        SELECT {role} INTO xq_how FROM {table} WHERE {waits} {lock};
        CONTINUE WHEN NOT FOUND;
        xq_failed := EXISTS (SELECT 1 FROM {after} WHERE {its_link} AND state IN ('B', 'X'));
        IF (xq_failed AND left(xq_how, 4) = 'kill') THEN
            -- Deeper than this the maintenance goes on.
            IF (pg_trigger_depth() < 32) THEN
                {kill};
            END IF;
        ELSIF (NOT EXISTS (SELECT 1 FROM {after} WHERE {its_link} AND state = '' ORDER BY {from_far} LIMIT 1)
            AND (NOT xq_failed OR left(xq_how, 3) = 'run')
        ) THEN
--? delayed
            IF (split_part(xq_how, ' ', 2) <> '') THEN
                {release_late};
            ELSE
                {release};
            END IF;
--? not delayed
            {release};
--? counts_events
            INSERT INTO {count} (tube, source, target, n) VALUES (
                CASE split_part(xq_how, ' ', 2) WHEN '' THEN 'W-R after' ELSE 'W-W after' END, '{elsewhere}', '{elsewhere}', 1
            );
--? end
        END IF;
    END LOOP;
    PERFORM set_config('xq.context', xq_before, true);
    RETURN NULL;
END
