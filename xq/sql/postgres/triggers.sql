The triggers of a queue, in PL/pgSQL: they count each transition, note it in the history, record the end of a task for
its waiters, notify processes, and keep heads. `--: insert` is a trigger, `--: insert_body` the body of its
function.

Many rows that a statement inserts or deletes are counted at once. An update is counted row by row: if keys change, the
rows of a statement do not show which old row belongs to which new one.

{old} and {new} are the states of a row before and after, 'X' where it is no task. {was} and {is} are the conditions
that it was and is one. A row in {alive} without a uuid is a process that is notified; it waits if a caller there does.
Commits with notifications run one at a time, so a trigger notifies only if a process needs it.

Words of parts: limited (the feature limit), blocking (a task may block others, as in a utube), room (one of the two),
timers.

--: declared
-- The event context, for the history.
--? history
DECLARE
    event_name text := {event};
    at_us bigint := {at};
    by_actor text := CASE WHEN event_name <> 'write' THEN {by_actor} END;
    by_reason text := CASE WHEN event_name <> 'write' THEN {by_reason} END;
--? end

--: create
-- The function names its tables in full, because setting its search_path for each call costs a tenth of a put. It is
-- written with {here} as their schema where that is only known now.
EXECUTE replace({create_function}, {here}, quote_ident(current_schema()));
{create_trigger};

--: create_function
CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS {body}

--: drop
DROP TRIGGER IF EXISTS {name} ON {table}

--: insert
CREATE TRIGGER {name} AFTER INSERT ON {table} REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION {function}

--: insert_body
--= declared
BEGIN
    {effects:insert}{heads:insert}
--? floors
    -- A take may begin above it. This must come after the write, which gives the transaction its number.
    IF (EXISTS (SELECT 1 FROM changed WHERE {is_ready} AND {new_place} < {high})) THEN
        INSERT INTO {back} (key) SELECT MIN({new_place}) FROM changed WHERE {is_ready};
    END IF;
--? end
    -- Reads the rows once, and looks for processes once at most.
    IF (EXISTS (
        SELECT 1 FROM changed
        WHERE ({is_ready} AND EXISTS (SELECT 1 FROM {alive} WHERE uuid = '' AND waits))
--? timers
            OR {is_soon}
--? end
    )) THEN
        {notify}
    END IF;
    RETURN NULL;
END

--: delete
CREATE TRIGGER {name} AFTER DELETE ON {table} REFERENCING OLD TABLE AS changed FOR EACH STATEMENT
    EXECUTE FUNCTION {function}

--: truncate
CREATE TRIGGER {name} BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {function}

--: delete_body
-- Of a delete and of a truncate: {rows} are the rows that are gone, or those that will be.
--= declared
BEGIN
    {effects:delete}
--? room
    -- A put that waits has room, or a take that waits finds a task that this one blocked.
    IF (EXISTS (SELECT 1 FROM {alive} WHERE uuid = '' AND waits)
        AND EXISTS (SELECT 1 FROM {rows} WHERE {was_in_the_way})
    ) THEN
        {notify}
    END IF;
--? end
    {left}
    RETURN NULL;
END

--: links_left
DELETE FROM {after};

--: members_left_by_delete
PERFORM {settle}(xq_name, xq_lost) FROM (
    SELECT {old_group} AS xq_name, CASE WHEN {event_name} <> 'ack' THEN COUNT(*) ELSE 0 END AS xq_lost
    FROM changed WHERE {was_unfinished} GROUP BY 1 ORDER BY 1
) AS xq_ended;

--: members_left_by_truncate
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

--: update
CREATE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW WHEN (
    -- A change that a trigger must see: of a watched column, or a timer that another program has set.
    {watched_differ}
--? timers
    OR {new_timer_is_soon}
--? history
    -- A statement of xq that writes a status is a transition, even if the status stays the same.
    OR COALESCE(current_setting('xq.context', true), '') <> ''
--? end
) EXECUTE FUNCTION {function}

--: update_body
--= declared
BEGIN
    {effects:update}
--? emptied
    -- A row that leaves the queue keeps no timer, which a later entry would have. A BEFORE trigger, called or not, would
    -- lock each row that is updated once more.
    IF ({has_left}) THEN
        UPDATE {table} SET {emptied} WHERE {its_row};
    END IF;
--? members
    IF ({was_unfinished} AND NOT {is_live} AND NOT ({is_unfinished} AND NOT {was_live})) THEN
        PERFORM {settle}({old_group}, CASE WHEN {new} = 'X' AND {event_name} <> 'ack' THEN 1 ELSE 0 END);
    END IF;
--? floors
    IF ({is_ready} AND {new_place} < {high}) THEN
        INSERT INTO {back} (key) VALUES ({new_place});
    END IF;
--? end
    -- A task is ready, a limited queue has room, a task no longer blocks others, or a timer passes soon.
    IF (
        (({is_ready}
--? limited
            OR ({was_limited} AND NOT {is_limited})
--? blocking
            OR ({was_blocking} AND NOT {is_taken})
--? end
        ) AND EXISTS (SELECT 1 FROM {alive} WHERE uuid = '' AND waits))
--? timers
        OR {is_soon}
--? end
    ) THEN
        {notify}
    END IF;
    RETURN NULL;
END

--: update_heads
CREATE TRIGGER {name} AFTER UPDATE ON {table} REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT
    EXECUTE FUNCTION {function}

--: update_heads_body
{heads:update}

--: after_update
CREATE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW WHEN ({may_end} OR {leaves}) EXECUTE FUNCTION {function}

--: after_delete
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
