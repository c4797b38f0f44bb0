-- The least there is: the core, with integers as statuses.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name));

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid TEXT NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process));

-- install: the table job_xq_count
CREATE TABLE IF NOT EXISTS "job_xq_count" (tube text, source text, target text, n bigint NOT NULL);

-- install: the table job_xq_count
ALTER TABLE "job_xq_count"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table job_xq_wait
CREATE TABLE IF NOT EXISTS "job_xq_wait" AS
    SELECT "id" AS k0, CAST('' AS text) AS waiter, CAST('' AS text) AS session, CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target FROM "job" WITH NO DATA;

-- install: the table job_xq_wait
CREATE UNIQUE INDEX IF NOT EXISTS "job_xq_wait_key"
    ON "job_xq_wait" (k0, waiter);

-- install: the table job_xq_owner
CREATE TABLE IF NOT EXISTS "job_xq_owner" AS
    SELECT "id", CAST('' AS text) AS owner FROM "job" WITH NO DATA;

-- install: the table job_xq_owner
CREATE UNIQUE INDEX IF NOT EXISTS "job_xq_owner_key"
    ON "job_xq_owner" ("id");

-- install: the index job_xq_oldest_R
CREATE INDEX IF NOT EXISTS "job_xq_oldest_R"
    ON "job" ("id")
    WHERE "status" = 0;

-- install: the trigger job_xq_insert
DROP TRIGGER IF EXISTS "job_xq_insert"
    ON "job";

-- install: the trigger job_xq_insert
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "job_xq_insert"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."job_xq_count" (tube, source, target, n) SELECT '''', ''X'', CASE changed."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, COUNT(*) FROM changed WHERE changed."status" IN (0, 1) GROUP BY 1, 2, 3; IF (EXISTS (SELECT 1 FROM changed WHERE (changed."status" = 0 AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "job_xq_insert" AFTER INSERT
        ON "job" REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "job_xq_insert"();
END $xqx$;

-- install: the trigger job_xq_delete
DROP TRIGGER IF EXISTS "job_xq_delete"
    ON "job";

-- install: the trigger job_xq_delete
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "job_xq_delete"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."job_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, ''X'', COUNT(*) FROM changed WHERE changed."status" IN (0, 1) GROUP BY 1, 2, 3; DELETE FROM "@here@"."job_xq_owner" AS o USING (SELECT * FROM changed) AS changed WHERE o."id" = changed."id" AND changed."status" = 1; IF (EXISTS (SELECT 1 FROM "@here@"."job_xq_wait")) THEN UPDATE "@here@"."job_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''job'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (0, 1); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "job_xq_delete" AFTER DELETE
        ON "job" REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "job_xq_delete"();
END $xqx$;

-- install: the trigger job_xq_truncate
DROP TRIGGER IF EXISTS "job_xq_truncate"
    ON "job";

-- install: the trigger job_xq_truncate
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "job_xq_truncate"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."job_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, ''X'', COUNT(*) FROM "@here@"."job" AS changed WHERE changed."status" IN (0, 1) GROUP BY 1, 2, 3; DELETE FROM "@here@"."job_xq_owner" AS o USING (SELECT * FROM "@here@"."job" AS changed) AS changed WHERE o."id" = changed."id" AND changed."status" = 1; IF (EXISTS (SELECT 1 FROM "@here@"."job_xq_wait")) THEN UPDATE "@here@"."job_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''job'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM "@here@"."job" AS changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (0, 1); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "job_xq_truncate" BEFORE TRUNCATE
        ON "job" FOR EACH STATEMENT EXECUTE FUNCTION "job_xq_truncate"();
END $xqx$;

-- install: the trigger job_xq_update
DROP TRIGGER IF EXISTS "job_xq_update"
    ON "job";

-- install: the trigger job_xq_update
DO $xqx$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass('"job"')) THEN EXECUTE replace('CREATE OR REPLACE FUNCTION "job_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    DECLARE pair record; old "@here@"."job"; new "@here@"."job"; BEGIN FOR pair IN SELECT CAST(was.* AS "@here@"."job") AS was, CAST(became.* AS "@here@"."job") AS became FROM was FULL JOIN became ON was."id" = became."id" LOOP old := pair.was; new := pair.became; CONTINUE WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id") IS NOT TRUE; IF (CASE OLD."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END <> CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END) THEN INSERT INTO "@here@"."job_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, 1); END IF; IF (OLD."status" = 1 AND (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."job_xq_owner" WHERE "job_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."status" IN (0, 1), FALSE) AND (NOT COALESCE(NEW."status" IN (0, 1), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."job_xq_wait")) THEN UPDATE "@here@"."job_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''job'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = 0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END LOOP; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "job_xq_update" AFTER UPDATE
        ON "job" REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION "job_xq_update"();
    ELSE EXECUTE replace('CREATE OR REPLACE FUNCTION "job_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN IF (CASE OLD."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END <> CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END) THEN INSERT INTO "@here@"."job_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END, 1); END IF; IF (OLD."status" = 1 AND (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."job_xq_owner" WHERE "job_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."status" IN (0, 1), FALSE) AND (NOT COALESCE(NEW."status" IN (0, 1), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."job_xq_wait")) THEN UPDATE "@here@"."job_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''job'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN 0 THEN ''R'' WHEN 1 THEN ''T'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = 0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "job_xq_update" AFTER UPDATE
        ON "job" FOR EACH ROW WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id") EXECUTE FUNCTION "job_xq_update"();
    END IF;
END $xqx$;

-- install: count what is there
INSERT INTO "job_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "job" WHERE "status" IN (0, 1) GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "job_xq_count");

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'job';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('job', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "job" ("name", "status")
    VALUES (:f1_0, 0)
    RETURNING "id", "name", "status";

-- X put R: 2
INSERT INTO "job" ("name", "status")
    VALUES (:f1_0, 0), (:f1_1, 0)
    RETURNING "id", "name", "status";

-- R take T: the oldest
WITH moved AS (UPDATE "job" SET "status" = 1 WHERE "id" = (SELECT "id" FROM "job" WHERE "status" = 0 ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "id", "name", "status"), remembered AS (INSERT INTO "job_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T: the n oldest
WITH moved AS (UPDATE "job" SET "status" = 1 WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "status" = 0 ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked) RETURNING "id", "name", "status"), remembered AS (INSERT INTO "job_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- T ack X: one, of this session
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" = :k0 AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T ack X: many, of this session
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T ack X: one, of this very take
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" = :k0 AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T ack X: many, of this very take
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T ack X with update={'name': ...}: one
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" = :k0 AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", :f1, "status";

-- T release R: one, of this session
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" = :k0 AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T release R: many, of this session
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T release R: one, of this very take
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" = :k0 AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T release R: many, of this very take
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "job" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 1 FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "job_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "name", "status";

-- T release R: n of a session
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT t."id" FROM "job" AS t, "job_xq_owner" AS o WHERE o."id" = t."id" AND t."status" = 1 AND o.owner COLLATE "C" >= :session AND o.owner COLLATE "C" < :session_end LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "name", "status";

-- T release R: n, whosesoever
UPDATE "job"
    SET "status" = 0
    WHERE "status" = 1;

-- T release R: n, whosesoever, returned
UPDATE "job"
    SET "status" = 0
    WHERE "status" = 1
    RETURNING "id", "name", "status";

-- T snatch R: one
UPDATE "job"
    SET "status" = 0
    WHERE "id" = :k0 AND "status" = 1
    RETURNING "id", "name", "status";

-- R switch R: one
UPDATE "job"
    SET "status" = 0
    WHERE "id" = :k0 AND "status" = 0
    RETURNING "id", "name", "status";

-- R T kill X: one
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 0
    RETURNING "id", "name", "status";

-- R T kill X: many
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 0
    RETURNING "id", "name", "status";

-- kill in RT: n, whosesoever
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN (0, 1);

-- kill in RT: n, whosesoever, returned
DELETE FROM "job"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN (0, 1)
    RETURNING "id", "name", "status";

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM (SELECT 1 FROM "job" WHERE "status" IN (0, 1) FOR UPDATE) AS held;

-- look at one task, and at who holds it
SELECT "id", "name", "status", (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") FROM "job"
    WHERE "id" = :k0;

-- R T by_state
SELECT "id", "name", "status" FROM "job"
    WHERE "status" = 0
    ORDER BY "id" LIMIT :n;

-- taken
SELECT "id", (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") FROM "job"
    WHERE "status" = 1;

-- stats
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "job_xq_count"
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "job"
    WHERE "status" IN (0, 1)
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "job_xq_count"
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "job" WHERE "status" IN (0, 1) GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "job_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - MIN(age(transactionid)) FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock';

-- on_change: whether a change was committed
SELECT 1
    WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed';

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'job';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'job';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends)
    SELECT :uuid, queue, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease FROM (VALUES (''), ('job')) AS mine (queue)
    WHERE NOT EXISTS (SELECT 1 FROM xq_session WHERE uuid = :uuid AND queue = mine.queue)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FOR UPDATE;

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FROM xq_session;

-- configure
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE
    SET value = :value;

-- pause
INSERT INTO xq_pause (queue, tube, whole)
    VALUES ('job', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'job' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('job', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'job' AND name = :name FOR UPDATE;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'job' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'job' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'job' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE queue = 'job' AND name = :name AND next_us <= CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO "job_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- wait: how tasks ended
SELECT waiter, event, target FROM "job_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "job_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "job_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM "job_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM "job"
    WHERE "status" = 0 LIMIT 1;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "job"
    GROUP BY 1;
