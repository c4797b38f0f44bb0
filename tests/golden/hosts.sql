-- Utubes, of which two tasks are taken at a time; priority and ttr.
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

-- install: the table visit_xq_count
CREATE TABLE IF NOT EXISTS "visit_xq_count" (tube, source, target, n INTEGER NOT NULL, PRIMARY KEY (tube, source, target)) WITHOUT ROWID;

-- install: the table visit_xq_count
DELETE FROM "visit_xq_count"
    WHERE tube = '' AND source = '' AND target = '';

-- install: the table visit_xq_wait
CREATE TABLE IF NOT EXISTS "visit_xq_wait" (k0 INTEGER, waiter TEXT, session TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, event TEXT, target TEXT, PRIMARY KEY (k0, waiter)) WITHOUT ROWID;

-- install: the table visit_xq_utube_2
CREATE TABLE IF NOT EXISTS "visit_xq_utube_2" (utube TEXT, priority INTEGER, k0 INTEGER, taken INTEGER NOT NULL CHECK (taken <= 2), PRIMARY KEY (utube)) WITHOUT ROWID;

-- install: the table visit_xq_utube_2
CREATE INDEX IF NOT EXISTS "visit_xq_utube_2_open"
    ON "visit_xq_utube_2" (priority, k0)
    WHERE taken < 2 AND k0 IS NOT NULL;

-- install: the index visit_xq_oldest_R
CREATE INDEX IF NOT EXISTS "visit_xq_oldest_R"
    ON "visit" ("priority", "id")
    WHERE "status" = 'R' AND "host" IS NULL;

-- install: the index visit_xq_utube
CREATE INDEX IF NOT EXISTS "visit_xq_utube"
    ON "visit" ("host" COLLATE BINARY, "priority", "id")
    WHERE "status" = 'R' AND "host" IS NOT NULL;

-- install: the index visit_xq_runat
CREATE INDEX IF NOT EXISTS "visit_xq_runat"
    ON "visit" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger visit_xq_insert
DROP TRIGGER IF EXISTS "main"."visit_xq_insert";

-- install: the trigger visit_xq_insert
CREATE TRIGGER "visit_xq_insert" AFTER INSERT
    ON "visit" WHEN (NEW."status" = 'R' OR NEW."status" = 'T') BEGIN
    INSERT INTO "visit_xq_count"
        VALUES ('', 'X', CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    INSERT INTO "visit_xq_utube_2" (utube, taken)
        SELECT NEW."host" COLLATE BINARY, 1
        WHERE (NEW."host" IS NOT NULL AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T'), FALSE)) AND (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END)
        ON CONFLICT (utube) DO UPDATE
        SET taken = "visit_xq_utube_2".taken + excluded.taken;
    INSERT INTO "visit_xq_utube_2" (utube, taken, priority, k0)
        SELECT NEW."host" COLLATE BINARY, 0, NEW."priority", NEW."id"
        WHERE (NEW."host" IS NOT NULL AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T'), FALSE)) AND NOT (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END) AND NEW."id" = (SELECT xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = NEW."host" COLLATE BINARY AND xq_first."status" = 'R' ORDER BY xq_first."priority", xq_first."id" LIMIT 1)
        ON CONFLICT (utube) DO UPDATE
        SET priority = excluded.priority,
            k0 = excluded.k0;
END;

-- install: the trigger visit_xq_update
DROP TRIGGER IF EXISTS "main"."visit_xq_update";

-- install: the trigger visit_xq_update
CREATE TRIGGER "visit_xq_update" AFTER UPDATE OF "status"
    ON "visit" WHEN OLD."status" IS NOT NEW."status" COLLATE BINARY AND ((OLD."status" = 'R' OR OLD."status" = 'T') OR (NEW."status" = 'R' OR NEW."status" = 'T')) AND NOT (OLD."id" IS NOT NEW."id" COLLATE BINARY) BEGIN
    INSERT INTO "visit_xq_count"
        SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, 1
        WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T') AND ((NEW."status" = 'R' OR NEW."status" = 'T')) IS NOT TRUE;
END;

-- install: the trigger visit_xq_update_task
DROP TRIGGER IF EXISTS "main"."visit_xq_update_task";

-- install: the trigger visit_xq_update_task
CREATE TRIGGER "visit_xq_update_task" AFTER UPDATE OF "id"
    ON "visit" WHEN (OLD."id" IS NOT NEW."id" COLLATE BINARY) AND ((OLD."status" = 'R' OR OLD."status" = 'T') OR (NEW."status" = 'R' OR NEW."status" = 'T')) BEGIN
    INSERT INTO "visit_xq_count"
        SELECT '', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, 1
        WHERE CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END <> CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = CASE WHEN OLD."id" IS NOT NEW."id" COLLATE BINARY THEN 'X' ELSE CASE NEW."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END END
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T') AND (((NEW."status" = 'R' OR NEW."status" = 'T')) IS NOT TRUE OR OLD."id" IS NOT NEW."id" COLLATE BINARY);
END;

-- install: the trigger visit_xq_update_utube
DROP TRIGGER IF EXISTS "main"."visit_xq_update_utube";

-- install: the trigger visit_xq_update_utube
CREATE TRIGGER "visit_xq_update_utube" AFTER UPDATE OF "host", "status", "priority", "id"
    ON "visit" BEGIN
    UPDATE "visit_xq_utube_2"
        SET taken = "visit_xq_utube_2".taken + (CASE WHEN OLD."host" IS NOT NEW."host" COLLATE BINARY THEN 0 ELSE (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END) END) - (CASE WHEN OLD."status" = 'T' THEN 1 ELSE 0 END),
            (priority, k0) = (SELECT xq_first."priority", xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = "visit_xq_utube_2".utube AND xq_first."status" = 'R' AND "visit_xq_utube_2".taken + (CASE WHEN OLD."host" IS NOT NEW."host" COLLATE BINARY THEN 0 ELSE (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END) END) - (CASE WHEN OLD."status" = 'T' THEN 1 ELSE 0 END) < 2 ORDER BY xq_first."priority", xq_first."id" LIMIT 1)
        WHERE utube = OLD."host" COLLATE BINARY AND ((OLD."host" IS NOT NEW."host" COLLATE BINARY) OR OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."priority" IS NOT NEW."priority" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY) AND (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE));
    DELETE FROM "visit_xq_utube_2"
        WHERE utube = OLD."host" COLLATE BINARY AND ((OLD."host" IS NOT NEW."host" COLLATE BINARY) OR OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."priority" IS NOT NEW."priority" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY) AND (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE)) AND taken = 0 AND k0 IS NULL;
    INSERT INTO "visit_xq_utube_2" (utube, taken)
        SELECT NEW."host" COLLATE BINARY, 1
        WHERE ((OLD."host" IS NOT NEW."host" COLLATE BINARY) OR (OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."priority" IS NOT NEW."priority" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY) AND NOT (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE))) AND (NEW."host" IS NOT NULL AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T'), FALSE)) AND (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END)
        ON CONFLICT (utube) DO UPDATE
        SET taken = "visit_xq_utube_2".taken + excluded.taken;
    INSERT INTO "visit_xq_utube_2" (utube, taken, priority, k0)
        SELECT NEW."host" COLLATE BINARY, 0, NEW."priority", NEW."id"
        WHERE ((OLD."host" IS NOT NEW."host" COLLATE BINARY) OR (OLD."status" IS NOT NEW."status" COLLATE BINARY OR OLD."priority" IS NOT NEW."priority" COLLATE BINARY OR OLD."id" IS NOT NEW."id" COLLATE BINARY) AND NOT (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE))) AND (NEW."host" IS NOT NULL AND COALESCE((NEW."status" = 'R' OR NEW."status" = 'T'), FALSE)) AND NOT (CASE WHEN NEW."status" = 'T' THEN 1 ELSE 0 END) AND NEW."id" = (SELECT xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = NEW."host" COLLATE BINARY AND xq_first."status" = 'R' ORDER BY xq_first."priority", xq_first."id" LIMIT 1)
        ON CONFLICT (utube) DO UPDATE
        SET priority = excluded.priority,
            k0 = excluded.k0;
END;

-- install: the trigger visit_xq_delete
DROP TRIGGER IF EXISTS "main"."visit_xq_delete";

-- install: the trigger visit_xq_delete
CREATE TRIGGER "visit_xq_delete" AFTER DELETE
    ON "visit" WHEN (OLD."status" = 'R' OR OLD."status" = 'T') BEGIN
    INSERT INTO "visit_xq_count"
        VALUES ('', CASE OLD."status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END, 'X', 1)
        ON CONFLICT DO UPDATE
        SET n = n + 1;
    UPDATE "visit_xq_wait"
        SET event = printf('write'),
            target = 'X'
        WHERE k0 = OLD."id" AND event IS NULL AND (OLD."status" = 'R' OR OLD."status" = 'T');
    UPDATE "visit_xq_utube_2"
        SET taken = "visit_xq_utube_2".taken + -(CASE WHEN OLD."status" = 'T' THEN 1 ELSE 0 END),
            (priority, k0) = (SELECT xq_first."priority", xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = "visit_xq_utube_2".utube AND xq_first."status" = 'R' AND "visit_xq_utube_2".taken + -(CASE WHEN OLD."status" = 'T' THEN 1 ELSE 0 END) < 2 ORDER BY xq_first."priority", xq_first."id" LIMIT 1)
        WHERE utube = OLD."host" COLLATE BINARY AND (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE));
    DELETE FROM "visit_xq_utube_2"
        WHERE utube = OLD."host" COLLATE BINARY AND (OLD."host" IS NOT NULL AND COALESCE((OLD."status" = 'R' OR OLD."status" = 'T'), FALSE)) AND taken = 0 AND k0 IS NULL;
END;

-- install: count what is there
INSERT INTO "visit_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T') GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "visit_xq_count");

-- install, recount: the heads of utubes
DELETE FROM "visit_xq_utube_2";

-- install, recount: the heads of utubes
INSERT INTO "visit_xq_utube_2" (utube, taken)
    SELECT "visit"."host" COLLATE BINARY, SUM((CASE WHEN "visit"."status" = 'T' THEN 1 ELSE 0 END)) FROM "visit"
    WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE))
    GROUP BY 1
    ORDER BY 1
    ON CONFLICT (utube) DO UPDATE
    SET taken = "visit_xq_utube_2".taken + excluded.taken;

-- install, recount: the heads of utubes
UPDATE "visit_xq_utube_2"
    SET (priority, k0) = (SELECT xq_first."priority", xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = "visit_xq_utube_2".utube AND xq_first."status" = 'R' ORDER BY xq_first."priority", xq_first."id" LIMIT 1);

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'visit';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('visit', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "visit" ("url", "host", "priority", "status", "runat", "owner")
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- X put R: 2
INSERT INTO "visit" ("url", "host", "priority", "status", "runat", "owner")
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL), (:f1_1, :f2_1, :f5_1, 'R', NULL, NULL)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0,
        "owner" = :owner
    WHERE "id" = (SELECT "id" FROM (SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit_xq_utube_2" AS xq_h INDEXED BY "visit_xq_utube_2_open" CROSS JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority, xq_h.k0 LIMIT 1) UNION ALL SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority", "visit"."id" LIMIT 1)) ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + 60.0,
        "owner" = :owner
    WHERE "id" IN (SELECT "id" FROM (SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit_xq_utube_2" AS xq_h INDEXED BY "visit_xq_utube_2_open" CROSS JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority, xq_h.k0 LIMIT :n) UNION ALL SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority", "visit"."id" LIMIT :n)) ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T with ttr: the oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr,
        "owner" = :owner
    WHERE "id" = (SELECT "id" FROM (SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit_xq_utube_2" AS xq_h INDEXED BY "visit_xq_utube_2_open" CROSS JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority, xq_h.k0 LIMIT 1) UNION ALL SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority", "visit"."id" LIMIT 1)) ORDER BY "priority", "id" LIMIT 1)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R take T with ttr: the n oldest
UPDATE "visit"
    SET "status" = 'T',
        "runat" = COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :ttr,
        "owner" = :owner
    WHERE "id" IN (SELECT "id" FROM (SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit_xq_utube_2" AS xq_h INDEXED BY "visit_xq_utube_2_open" CROSS JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority, xq_h.k0 LIMIT :n) UNION ALL SELECT * FROM (SELECT "visit"."priority", "visit"."id" FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority", "visit"."id" LIMIT :n)) ORDER BY "priority", "id" LIMIT :n)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: one, of this session
DELETE FROM "visit"
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: many, of this session
DELETE FROM "visit"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: one, of this very take
DELETE FROM "visit"
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X: many, of this very take
DELETE FROM "visit"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ack X with update={'url': ...}: one
DELETE FROM "visit"
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", :f1, "host", "status", "runat", "priority", "owner";

-- T release R: one, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: many, of this session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: one, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: many, of this very take
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: n of a session
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "visit" WHERE "status" = 'T' AND "owner" >= :session AND "owner" < :session_end LIMIT :n)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T release R: n, whosesoever
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "status" = 'T';

-- T release R: n, whosesoever, returned
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T snatch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T touch T with increment: one, of this session
UPDATE "visit"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND substr("owner", 1, 37) = :session
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T touch T with increment: one, of this very take
UPDATE "visit"
    SET "runat" = COALESCE("runat", COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0)) + :increment
    WHERE "id" = :k0 AND "status" = 'T' AND "owner" = :token
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R switch R: one
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R T kill X: one
DELETE FROM "visit"
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- R T kill X: many
DELETE FROM "visit"
    WHERE "id" IN (SELECT value FROM json_each(:keys)) AND +"status" = 'R'
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- T ttr R: n that are due by runat
UPDATE "visit"
    SET "status" = 'R',
        "runat" = NULL,
        "owner" = NULL
    WHERE "id" IN (SELECT "id" FROM "visit" INDEXED BY "visit_xq_runat" WHERE "status" = 'T' AND "runat" <= COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) ORDER BY "runat" LIMIT :n)
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- kill in RT: n, whosesoever
DELETE FROM "visit"
    WHERE "status" IN ('R', 'T');

-- kill in RT: n, whosesoever, returned
DELETE FROM "visit"
    WHERE "status" IN ('R', 'T')
    RETURNING "id", "url", "host", "status", "runat", "priority", "owner";

-- before a kill in each of several states, of which events are counted
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- look at one task, and at who holds it
SELECT "id", "url", "host", "status", "runat", "priority", "owner", "owner" FROM "visit"
    WHERE "id" = :k0;

-- R T by_state
SELECT "id", "url", "host", "status", "runat", "priority", "owner" FROM "visit"
    WHERE "status" = 'R'
    ORDER BY "priority", "id" LIMIT :n;

-- taken
SELECT "id", "owner" FROM "visit"
    WHERE "status" = 'T';

-- stats
SELECT tube, source, target, n, 1 FROM "visit_xq_count";

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit"
    WHERE "status" IN ('R', 'T')
    GROUP BY 1, 2;

-- check: heads of utubes that are wrong
SELECT (SELECT COUNT(*) FROM (SELECT "visit"."host" COLLATE BINARY AS utube, SUM((CASE WHEN "visit"."status" = 'T' THEN 1 ELSE 0 END)) AS taken FROM "visit" WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE)) GROUP BY 1) AS xq_t LEFT JOIN "visit_xq_utube_2" AS xq_h ON xq_h.utube = xq_t.utube WHERE COALESCE(xq_h.taken, 0) <> xq_t.taken OR (xq_t.taken < 2 AND (xq_h.utube IS NULL OR xq_h.priority IS NOT (SELECT xq_first."priority" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = xq_t.utube AND xq_first."status" = 'R' ORDER BY xq_first."priority", xq_first."id" LIMIT 1) COLLATE BINARY OR xq_h.k0 IS NOT (SELECT xq_first."id" FROM "visit" AS xq_first INDEXED BY "visit_xq_utube" WHERE xq_first."host" IS NOT NULL AND xq_first."host" COLLATE BINARY = xq_t.utube AND xq_first."status" = 'R' ORDER BY xq_first."priority", xq_first."id" LIMIT 1) COLLATE BINARY))) + (SELECT COUNT(*) FROM (SELECT utube FROM "visit_xq_utube_2" AS xq_h WHERE TRUE EXCEPT SELECT "visit"."host" COLLATE BINARY FROM "visit" WHERE ("visit"."host" IS NOT NULL AND COALESCE("visit"."status" IN ('R', 'T'), FALSE))) AS xq_e);

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, n, 1 FROM "visit_xq_count"
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM "visit" WHERE "status" IN ('R', 'T') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "visit_xq_count" (tube, source, target, n)
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
    WHERE name = 'visit';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_operation
DELETE FROM xq_operation
    WHERE queue = 'visit';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'visit';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- act: forget the operations that ended long ago
DELETE FROM xq_operation
    WHERE queue = 'visit' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) - :kept_us;

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
    VALUES (:uuid, '', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program), (:uuid, 'visit', COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0), COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease, :host, :pid, :program)
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
    VALUES ('visit', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'visit' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('visit', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND name = :name;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'visit' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'visit' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER) FROM xq_schedule
    WHERE queue = 'visit' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) * 1000000.0) AS INTEGER);

-- wait: begin
INSERT INTO "visit_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0));

-- wait: how tasks ended
SELECT waiter, event, target FROM "visit_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "visit_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "visit_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM "visit_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1
    WHERE EXISTS (SELECT 1 FROM "visit_xq_utube_2" AS xq_h INDEXED BY "visit_xq_utube_2_open" CROSS JOIN "visit" ON xq_h.k0 = "visit"."id" WHERE xq_h.taken < 2 AND xq_h.k0 IS NOT NULL AND "visit"."status" = 'R' ORDER BY xq_h.priority, xq_h.k0 LIMIT 1) OR EXISTS (SELECT 1 FROM "visit" INDEXED BY "visit_xq_oldest_R" WHERE "visit"."host" IS NULL AND "visit"."status" = 'R' ORDER BY "visit"."priority", "visit"."id" LIMIT 1);

-- when something falls due
SELECT MIN(at) - COALESCE(:now, (julianday('now') - 2440587.5) * 86400.0) FROM (SELECT (SELECT "runat" FROM "visit" INDEXED BY "visit_xq_runat" WHERE "status" = 'T' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at) AS times;

-- before anything is read within the application's transaction
UPDATE xq_session
    SET since = since
    WHERE FALSE;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "visit"
    GROUP BY 1;
