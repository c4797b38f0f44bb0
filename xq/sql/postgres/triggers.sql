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
--? programs
    {programs:update}
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
