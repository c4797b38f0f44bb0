-- The least there is: the core, with integers as statuses.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host TEXT, pid BIGINT, program TEXT, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name));

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue TEXT NOT NULL, bucket TEXT NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket));

-- install: the table xq_operation
CREATE TABLE IF NOT EXISTS xq_operation (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, event TEXT NOT NULL, filter TEXT NOT NULL, options TEXT NOT NULL, actor TEXT, reason TEXT, chunk INTEGER NOT NULL, created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, reached TEXT, done BIGINT NOT NULL, skipped BIGINT NOT NULL, looked BIGINT NOT NULL, state TEXT NOT NULL);

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name TEXT NOT NULL, slot INTEGER NOT NULL, session TEXT NOT NULL, PRIMARY KEY (name, slot));

-- install: the table job_xq_count
CREATE TABLE IF NOT EXISTS "job_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table job_xq_count
DELETE FROM "job_xq_count"
    WHERE tube = '' AND source = '' AND target = '';

-- install: the table job_xq_wait
CREATE TABLE IF NOT EXISTS "job_xq_wait" (k0 INTEGER, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, waiter)) WITHOUT ROWID;

-- install: the table job_xq_owner
CREATE TABLE IF NOT EXISTS "job_xq_owner" ("id" INTEGER, owner TEXT NOT NULL, PRIMARY KEY ("id")) WITHOUT ROWID;

-- install: the index job_xq_oldest_R
CREATE INDEX IF NOT EXISTS "job_xq_oldest_R"
    ON "job" ("id")
    WHERE "status" = 0;

-- install: the trigger job_xq_insert
DROP TRIGGER IF EXISTS "main"."job_xq_insert";

-- install: the trigger job_xq_insert
CREATE TRIGGER "job_xq_insert" AFTER INSERT
    ON "job" WHEN (NEW."status" = 0 OR NEW."status" = 1) BEGIN
    INSERT INTO "job_xq_count"
        VALUES ('', 'X', CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
END;

-- install: the trigger job_xq_update
DROP TRIGGER IF EXISTS "main"."job_xq_update";

-- install: the trigger job_xq_update
CREATE TRIGGER "job_xq_update" AFTER UPDATE OF "status"
    ON "job" WHEN OLD."status" IS NOT NEW."status" COLLATE BINARY AND ((OLD."status" = 0 OR OLD."status" = 1) OR (NEW."status" = 0 OR NEW."status" = 1)) AND NOT (OLD."id" IS NOT NEW."id" COLLATE BINARY) BEGIN
    INSERT INTO "job_xq_count"
        SELECT '', CASE OLD."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, 1
        WHERE CASE OLD."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END <> CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "job_xq_wait"
        SET event = printf('write'),
            target = CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 0 OR OLD."status" = 1) AND ((NEW."status" = 0 OR NEW."status" = 1)) IS NOT TRUE;
    DELETE FROM "job_xq_owner"
        WHERE "id" = OLD."id" AND OLD."status" = 1 AND OLD."status" IS NOT NEW."status" COLLATE BINARY;
END;

-- install: the trigger job_xq_update_task
DROP TRIGGER IF EXISTS "main"."job_xq_update_task";

-- install: the trigger job_xq_update_task
CREATE TRIGGER "job_xq_update_task" AFTER UPDATE OF "id"
    ON "job" WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND ((OLD."status" = 0 OR OLD."status" = 1) OR (NEW."status" = 0 OR NEW."status" = 1)) BEGIN
    INSERT INTO "job_xq_count"
        SELECT '', CASE OLD."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, 1
        WHERE CASE OLD."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END <> CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "job_xq_wait"
        SET event = printf('write'),
            target = CASE WHEN OLD."id" IS NOT NEW."id" COLLATE BINARY THEN 'X' ELSE CASE NEW."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 0 OR OLD."status" = 1) AND (((NEW."status" = 0 OR NEW."status" = 1)) IS NOT TRUE OR OLD."id" IS NOT NEW."id" COLLATE BINARY);
    DELETE FROM "job_xq_owner"
        WHERE "id" = OLD."id" AND OLD."status" = 1 AND (OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY);
END;

-- install: the trigger job_xq_delete
DROP TRIGGER IF EXISTS "main"."job_xq_delete";

-- install: the trigger job_xq_delete
CREATE TRIGGER "job_xq_delete" AFTER DELETE
    ON "job" WHEN (OLD."status" = 0 OR OLD."status" = 1) BEGIN
    INSERT INTO "job_xq_count"
        VALUES ('', CASE OLD."status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END, 'X', 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "job_xq_wait"
        SET event = printf('write'),
            target = 'X'
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 0 OR OLD."status" = 1);
    DELETE FROM "job_xq_owner"
        WHERE "id" = OLD."id" AND OLD."status" = 1;
END;

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
UPDATE "job"
    SET "status" = 1
    WHERE "id" = (SELECT "id" FROM "job" INDEXED BY "job_xq_oldest_R" WHERE "status" = 0 ORDER BY "id" LIMIT 1)
    RETURNING "id", "name", "status";
-- and for each row of these
INSERT OR REPLACE INTO "job_xq_owner" ("id", owner)
    VALUES (:k0, :owner);

-- R take T: the n oldest
UPDATE "job"
    SET "status" = 1
    WHERE "id" IN (SELECT "id" FROM "job" INDEXED BY "job_xq_oldest_R" WHERE "status" = 0 ORDER BY "id" LIMIT :n)
    RETURNING "id", "name", "status";
-- and for each row of these
INSERT OR REPLACE INTO "job_xq_owner" ("id", owner)
    VALUES (:k0, :owner);
-- or for all of them, by a list of their keys
INSERT OR REPLACE INTO "job_xq_owner" ("id", owner)
    SELECT value, :owner FROM json_each(:keys);

-- T ack X: one, of this session
DELETE FROM "job"
    WHERE "id" = :k0 AND "status" = 1 AND substr((SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id"), 1, 37) = :session
    RETURNING "id", "name", "status";

-- T ack X: many, of this session
DELETE FROM "job"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 1 AND substr((SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id"), 1, 37) = :session
    RETURNING "id", "name", "status";

-- T ack X: one, of this very take
DELETE FROM "job"
    WHERE "id" = :k0 AND "status" = 1 AND (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") = :token
    RETURNING "id", "name", "status";

-- T ack X: many, of this very take
DELETE FROM "job"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 1 AND (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") = :token
    RETURNING "id", "name", "status";

-- T ack X with update={'name': ...}: one
DELETE FROM "job"
    WHERE "id" = :k0 AND "status" = 1 AND substr((SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id"), 1, 37) = :session
    RETURNING "id", :f1, "status";

-- T release R: one, of this session
UPDATE "job"
    SET "status" = 0
    WHERE "id" = :k0 AND "status" = 1 AND substr((SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id"), 1, 37) = :session
    RETURNING "id", "name", "status";

-- T release R: many, of this session
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 1 AND substr((SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id"), 1, 37) = :session
    RETURNING "id", "name", "status";

-- T release R: one, of this very take
UPDATE "job"
    SET "status" = 0
    WHERE "id" = :k0 AND "status" = 1 AND (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") = :token
    RETURNING "id", "name", "status";

-- T release R: many, of this very take
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 1 AND (SELECT o.owner FROM "job_xq_owner" AS o WHERE o."id" = "job"."id") = :token
    RETURNING "id", "name", "status";

-- T release R: n of a session
UPDATE "job"
    SET "status" = 0
    WHERE "id" IN (SELECT "id" FROM "job" WHERE "status" = 1 AND "id" IN (SELECT "id" FROM "job_xq_owner" WHERE owner >= :session AND owner < :session_end) LIMIT :n)
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
    WHERE "id" = :k0 AND "status" = 0
    RETURNING "id", "name", "status";

-- R T kill X: many
DELETE FROM "job"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 0
    RETURNING "id", "name", "status";

-- kill in RT: n, whosesoever
DELETE FROM "job"
    WHERE "status" IN (0, 1);

-- kill in RT: n, whosesoever, returned
DELETE FROM "job"
    WHERE "status" IN (0, 1)
    RETURNING "id", "name", "status";

-- before a kill in each of several states, of which events are counted
UPDATE xq_session
    SET since = since
    WHERE FALSE;

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
SELECT tube, source, target, n, 1 FROM "job_xq_count";

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "job"
    WHERE "status" IN (0, 1)
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, n, 1 FROM "job_xq_count"
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 0 THEN 'R' WHEN 1 THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "job" WHERE "status" IN (0, 1) GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "job_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count)
    ON CONFLICT (tube, source, target) DO UPDATE
    SET n = n + :count;

-- on_change: whether a change was committed
CREATE TEMP TABLE IF NOT EXISTS xq_savepoint (number INTEGER PRIMARY KEY);

-- on_change: whether a change was committed
INSERT INTO xq_savepoint (number)
    VALUES (:savepoint)
    RETURNING number;

-- on_change: whether a change was committed
DELETE FROM xq_savepoint
    WHERE number = :savepoint
    RETURNING number;

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'job';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_operation
DELETE FROM xq_operation
    WHERE queue = 'job';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'job';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- act: forget the operations that ended long ago
DELETE FROM xq_operation
    WHERE queue = 'job' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - :kept_us;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- sessions: which process each is of
SELECT uuid, since, host, pid, program FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: which process it is of
SELECT host, pid, program FROM xq_session
    WHERE uuid = :uuid AND queue = '';

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program), (:uuid, 'job', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease,
        host = :host,
        pid = :pid,
        program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0);

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) FROM xq_session;

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
SELECT CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('job', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'job' AND name = :name;

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
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'job' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- wait: begin
INSERT INTO "job_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

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
SELECT 1 FROM "job" INDEXED BY "job_xq_oldest_R"
    WHERE "status" = 0 LIMIT 1;

-- before anything is read within the application's transaction
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "job"
    GROUP BY 1;
