-- The queue of docs/start/peewee.md: delayed, buried, keep, ttr. The column xq_owner has the tokens.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name TEXT PRIMARY KEY, version TEXT NOT NULL, fingerprint TEXT NOT NULL);

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid TEXT NOT NULL, queue TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host TEXT, pid BIGINT, program TEXT, PRIMARY KEY (uuid, queue));

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name TEXT PRIMARY KEY, value DOUBLE PRECISION NOT NULL);

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue TEXT NOT NULL, tube TEXT NOT NULL, whole INTEGER NOT NULL, since_us BIGINT, actor TEXT, reason TEXT, PRIMARY KEY (queue, tube, whole));

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue TEXT NOT NULL, name TEXT NOT NULL, spec TEXT NOT NULL, task TEXT NOT NULL, next_us BIGINT, last_us BIGINT, paused INTEGER, paused_us BIGINT, actor TEXT, reason TEXT, PRIMARY KEY (queue, name));

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue TEXT NOT NULL, bucket TEXT NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket));

-- install: the table xq_generation
CREATE TABLE IF NOT EXISTS xq_generation (queue TEXT NOT NULL, kind TEXT NOT NULL, generation INTEGER NOT NULL, version TEXT NOT NULL, definition TEXT NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY (queue, kind, generation));

-- install: the table xq_object
CREATE TABLE IF NOT EXISTS xq_object (queue TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (queue, name));

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name TEXT NOT NULL, slot INTEGER NOT NULL, session TEXT NOT NULL, PRIMARY KEY (name, slot));

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid TEXT NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process));

-- install: the table xq_lease
CREATE TABLE IF NOT EXISTS xq_lease (token TEXT PRIMARY KEY, ends DOUBLE PRECISION NOT NULL);

-- install: the table page_xq_count
CREATE TABLE IF NOT EXISTS "page_xq_count" (tube text, source text, target text, n bigint NOT NULL);

-- install: the table page_xq_count
ALTER TABLE "page_xq_count"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table page_xq_count
ALTER TABLE "page_xq_count" REPLICA IDENTITY FULL;

-- install: the table page_xq_wait
CREATE TABLE IF NOT EXISTS "page_xq_wait" AS
    SELECT "id" AS k0, CAST('' AS text) AS waiter, CAST('' AS text) AS session, CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target FROM "page" WITH NO DATA;

-- install: the table page_xq_wait
CREATE UNIQUE INDEX IF NOT EXISTS "page_xq_wait_key" ON "page_xq_wait" (k0, waiter);

-- install: the table page_xq_wait
ALTER TABLE "page_xq_wait" REPLICA IDENTITY FULL;

-- install: the table page_xq_back
CREATE TABLE IF NOT EXISTS "page_xq_back" (xid bigint NOT NULL DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint), key bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());

-- install: the table page_xq_back
CREATE INDEX IF NOT EXISTS "page_xq_back_xid" ON "page_xq_back" (xid, key);

-- install: the table page_xq_back
ALTER TABLE "page_xq_back" REPLICA IDENTITY FULL;

-- install: the table page_xq_back
ALTER TABLE "page_xq_back"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table page_xq_back
DO $xq$ DECLARE granted record;
BEGIN IF pg_get_serial_sequence('"page_xq_back"', 'key') IS NULL THEN CREATE SEQUENCE "page_xq_high" MINVALUE -9223372036854775808 OWNED BY "page_xq_back".key;
FOR granted IN
    SELECT privilege_type AS may, CASE privilege_type WHEN 'INSERT' THEN 'USAGE' WHEN 'DELETE' THEN 'UPDATE' END AS high, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE CAST(CAST(grantee AS regrole) AS text) END AS who FROM pg_class, aclexplode(relacl)
    WHERE oid = CAST('"page_xq_count"' AS regclass) AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') LOOP EXECUTE concat('GRANT ', granted.may, ' ON ', '"page_xq_back"', ' TO ', granted.who, ';
GRANT ' || granted.high || ' ON SEQUENCE ' || '"page_xq_high"' || ' TO ' || granted.who);
END LOOP;
END IF;
END $xq$;

-- install: the index page_xq_oldest_R
CREATE INDEX IF NOT EXISTS "page_xq_oldest_R" ON "page" ("id")
    WHERE "status" = 'R';

-- install: the index page_xq_oldest_B
CREATE INDEX IF NOT EXISTS "page_xq_oldest_B" ON "page" ("id")
    WHERE "status" = 'B';

-- install: the index page_xq_runat
CREATE INDEX IF NOT EXISTS "page_xq_runat" ON "page" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger page_xq_insert
DROP TRIGGER IF EXISTS "page_xq_insert" ON "page";

-- install: the trigger page_xq_insert
DO $xqxx$ BEGIN EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_insert"() RETURNS trigger LANGUAGE plpgsql AS $xqx$ #variable_conflict use_variable
BEGIN
    INSERT INTO "@here@"."page_xq_count" ("tube", "source", "target", "n")
    SELECT '''', ''X'', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, COUNT(*) FROM changed
    WHERE ''X'' <> CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END
    GROUP BY 1, 2, 3;
IF (EXISTS (SELECT 1 FROM changed
    WHERE changed."status" = ''R'' AND changed."id" < pg_sequence_last_value(CAST($xq$ "@here@"."page_xq_high" $xq$ AS regclass)))) THEN
    INSERT INTO "@here@"."page_xq_back" (key)
    SELECT MIN(changed."id") FROM changed
    WHERE changed."status" = ''R'';
END IF;
IF (EXISTS (SELECT 1 FROM changed
    WHERE (changed."status" = ''R'' AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = '''' AND waits)) OR (changed."status" = ''T'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = '''')) OR (changed."status" = ''W'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = '''')))) THEN PERFORM pg_notify(''xq'', '''');
END IF;
RETURN NULL;
END $xqx$', '"@here@"', quote_ident(current_schema()));
CREATE TRIGGER "page_xq_insert" AFTER INSERT ON "page" REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_insert"();
END $xqxx$;

-- install: the trigger page_xq_delete
DROP TRIGGER IF EXISTS "page_xq_delete" ON "page";

-- install: the trigger page_xq_delete
DO $xqx$ BEGIN EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_delete"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
BEGIN
    INSERT INTO "@here@"."page_xq_count" ("tube", "source", "target", "n")
    SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM changed
    WHERE CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END <> ''X''
    GROUP BY 1, 2, 3;
IF (EXISTS (SELECT 1 FROM "@here@"."page_xq_wait" AS xq_w)) THEN UPDATE "@here@"."page_xq_wait" AS xq_w
    SET "event" = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 6) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, "target" = ''X'' FROM changed
    WHERE xq_w.k0 = changed."id" AND xq_w.event IS NULL AND changed."status" IN (''R'', ''T'', ''W'');
IF FOUND THEN PERFORM pg_notify(''xq'', '''');
END IF;
END IF;  RETURN NULL;
END $xq$', '"@here@"', quote_ident(current_schema()));
CREATE TRIGGER "page_xq_delete" AFTER DELETE ON "page" REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_delete"();
END $xqx$;

-- install: the trigger page_xq_truncate
DROP TRIGGER IF EXISTS "page_xq_truncate" ON "page";

-- install: the trigger page_xq_truncate
DO $xqx$ BEGIN EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_truncate"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
BEGIN
    INSERT INTO "@here@"."page_xq_count" ("tube", "source", "target", "n")
    SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM "@here@"."page" AS changed
    WHERE CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END <> ''X''
    GROUP BY 1, 2, 3;
IF (EXISTS (SELECT 1 FROM "@here@"."page_xq_wait" AS xq_w)) THEN UPDATE "@here@"."page_xq_wait" AS xq_w
    SET "event" = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 6) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, "target" = ''X'' FROM "@here@"."page" AS changed
    WHERE xq_w.k0 = changed."id" AND xq_w.event IS NULL AND changed."status" IN (''R'', ''T'', ''W'');
IF FOUND THEN PERFORM pg_notify(''xq'', '''');
END IF;
END IF;  RETURN NULL;
END $xq$', '"@here@"', quote_ident(current_schema()));
CREATE TRIGGER "page_xq_truncate" BEFORE TRUNCATE ON "page" FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_truncate"();
END $xqx$;

-- install: the trigger page_xq_update
DROP TRIGGER IF EXISTS "page_xq_update" ON "page";

-- install: the trigger page_xq_update
DO $xqxx$ BEGIN EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xqx$ #variable_conflict use_variable
BEGIN IF ((OLD."status" = ''T'' OR (OLD."status" IN (''T'', ''D'') AND NEW."status" IN (''R'', ''T'', ''W'', ''B'', ''D''))) AND OLD."status" IS DISTINCT FROM NEW."status" AND (OLD."status" = ''T'' AND NEW."xq_owner" = ''-'' || OLD."xq_owner") IS NOT TRUE AND CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 6) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END = ''write'') THEN
    INSERT INTO "@here@"."page_xq_count" ("tube", "source", "target", "n")
    VALUES (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END || ''-'' || CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END || '' write'', ''S'', ''S'', 1);
END IF;
IF (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END <> CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END) THEN
    INSERT INTO "@here@"."page_xq_count" ("tube", "source", "target", "n")
    VALUES ('''', CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, 1);
END IF;
IF (((NEW."status" IN (''R'', ''T'', ''W'')) IS NOT TRUE OR (OLD."id" IS DISTINCT FROM NEW."id")) AND OLD."status" IN (''R'', ''T'', ''W'') AND EXISTS (SELECT 1 FROM "@here@"."page_xq_wait" AS xq_w)) THEN UPDATE "@here@"."page_xq_wait" AS xq_w
    SET "event" = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 6) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, "target" = CASE WHEN (OLD."id" IS DISTINCT FROM NEW."id") THEN ''X'' ELSE CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END END
    WHERE k0 = OLD."id" AND event IS NULL;
IF FOUND THEN PERFORM pg_notify(''xq'', '''');
END IF;
END IF;
IF (NOT COALESCE(NEW."status" IN (''R'', ''T'', ''W'', ''B'', ''D''), FALSE) AND COALESCE(OLD."status" IN (''R'', ''T'', ''W'', ''B'', ''D''), FALSE) AND (NEW."runat" IS DISTINCT FROM NULL) AND (NEW."xq_owner" IN (''-'', ''--'') AND OLD."xq_owner" IS DISTINCT FROM NEW."xq_owner") IS NOT TRUE) THEN UPDATE "@here@"."page"
    SET "runat" = NULL
    WHERE "id" = NEW."id";
END IF;
IF (NEW."status" = ''R'' AND NEW."id" < pg_sequence_last_value(CAST($xq$ "@here@"."page_xq_high" $xq$ AS regclass))) THEN
    INSERT INTO "@here@"."page_xq_back" (key)
    VALUES (NEW."id");
END IF;
IF (((NEW."status" = ''R'') AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = '''' AND waits)) OR (NEW."status" = ''T'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = '''')) OR (NEW."status" = ''W'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive
    WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''');
END IF;
RETURN NULL;
END $xqx$', '"@here@"', quote_ident(current_schema()));
CREATE TRIGGER "page_xq_update" AFTER UPDATE ON "page" FOR EACH ROW WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) EXECUTE FUNCTION "page_xq_update"();
END $xqxx$;

-- install: record
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition'), version, fingerprint, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_queue
    WHERE name = 'page' AND (version, fingerprint) NOT IN (SELECT version, definition FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition');

-- install: record
UPDATE xq_generation
    SET at_us = CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint)
    WHERE queue = 'page' AND kind = 'definition' AND (version, definition) = (SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page');

-- install: record
DELETE FROM xq_queue
    WHERE name = 'page';

-- install: record
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('page', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put R: 2
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL), (:f1_1, :f2_1, 'R', NULL, NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put W with delay: 1
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- X put W with delay: 2
INSERT INTO "page" ("url", "title", "status", "runat", "xq_owner")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), NULL), (:f1_1, :f2_1, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), NULL)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T: first
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8), "xq_owner" = :owner
    WHERE "id" = (SELECT "id" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T: oldest
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8), "xq_owner" = :owner
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T with ttr: first
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8), "xq_owner" = :owner
    WHERE "id" = (SELECT "id" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R take T with ttr: oldest
UPDATE "page"
    SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8), "xq_owner" = :owner
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: key, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: key, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D: keys, each of its take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND ("id", '' || "xq_owner") IN (SELECT CAST(listed ->> 0 AS bigint), CAST(listed ->> 1 AS text) FROM json_array_elements(CAST(:keys AS json)) AS listed))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ack D with update={'url': ...}
UPDATE "page"
    SET "url" = :f1, "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: key, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: key, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: keys, each of its take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND ("id", '' || "xq_owner") IN (SELECT CAST(listed ->> 0 AS bigint), CAST(listed ->> 1 AS text) FROM json_array_elements(CAST(:keys AS json)) AS listed))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: owned
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'T' AND ("xq_owner" COLLATE "C") >= :first0 AND ("xq_owner" COLLATE "C") < :end0 LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release R: all
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "status" = 'T';

-- T release R: each
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T snatch R: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T touch T with increment: key, of this session
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T touch T with increment: key, of this very take
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" = :k0 AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W restart R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D restart R: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R switch R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R B switch W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R W B D switch B: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R W B D switch D: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W B switch R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W switch W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D switch R: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D switch W with delay: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'W' END, "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W B D kill X: key
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W B D kill X: keys
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W cancel X: key
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: key, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: key, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T bury B: keys, each of its take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND '' || "status" = 'T' AND ("id" = ANY(ARRAY(SELECT CAST(listed ->> 0 AS bigint) FROM json_array_elements(CAST(:keys AS json)) AS listed)) AND ("id", '' || "xq_owner") IN (SELECT CAST(listed ->> 0 AS bigint), CAST(listed ->> 1 AS text) FROM json_array_elements(CAST(:keys AS json)) AS listed))
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: first
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = (SELECT "id" FROM "page"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: oldest
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig R: key
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- R T W cancel B: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W delay R: due by runat
UPDATE "page"
    SET "status" = 'R', "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'W' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))
    ORDER BY "runat" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T ttr R: due by runat
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'R' END, "runat" = NULL, "xq_owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'T' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AND COALESCE(CAST("xq_owner" AS text) COLLATE "default", '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)))
    ORDER BY "runat" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release W with delay: key, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'W' END, "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND substr("xq_owner", 1, 37) = :session
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T release W with delay: key, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'W' END, "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T' AND "xq_owner" = :token
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- T snatch W with delay: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'W' END, "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- W restart W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- D restart W with delay: key
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'W' END, "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'D'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: first
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = (SELECT "id" FROM "page"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: oldest
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page"
    WHERE "status" = 'B'
    ORDER BY "id" LIMIT :n FOR NO KEY UPDATE SKIP LOCKED)
    SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- B dig W with delay: key
UPDATE "page"
    SET "status" = 'W', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8), "xq_owner" = NULL
    WHERE "id" = :k0 AND '' || "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- kill in RTWBD: all
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T', 'W', 'B', 'D');

-- kill in RTWBD: each
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T', 'W', 'B', 'D')
    RETURNING "id", "url", "title", "status", "runat", "xq_owner";

-- count what is there
INSERT INTO "page_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "page_xq_count");

-- installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page';

-- statuses in use
SELECT "status", COUNT(*) FROM "page"
    GROUP BY 1;

-- queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since, host, pid, program FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session listed
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    SELECT :uuid, queue, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease, :host, :pid, :program FROM (VALUES (''), (:queue)) AS mine (queue)
    WHERE NOT EXISTS (SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = mine.queue)
    ON CONFLICT (uuid, queue) DO NOTHING;

-- session is there
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- sessions listed
SELECT uuid, queue, ends - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), host, pid, program FROM xq_session;

-- rejoin session
UPDATE xq_session
    SET ends = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease, host = :host, pid = :pid, program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- expire session later
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid IN (:uuids) AND (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session ends
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends IS NOT NULL;

-- session over
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FOR NO KEY UPDATE;

-- deregister session
DELETE FROM xq_session
    WHERE uuid IN (:uuids) AND queue = :queue;

-- set setting
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON CONFLICT (name) DO UPDATE
    SET value = :value;

-- time us
SELECT CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint);

-- forget cancelled
DELETE FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:' AND value < COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8));

-- pause
INSERT INTO xq_pause (queue, tube, whole, since_us, actor, reason)
    VALUES ('page', :tube, :whole, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint), :actor, :reason)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'page' AND tube = :tube AND whole = :whole;

-- pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause
    WHERE queue = 'page';

-- add schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('page', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- schedule
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'page' AND name = :name FOR NO KEY UPDATE;

-- set schedule
UPDATE xq_schedule
    SET spec = :spec, task = :task, next_us = :next_us
    WHERE queue = 'page' AND name = :name;

-- drop schedule
DELETE FROM xq_schedule
    WHERE queue = 'page' AND name = :name;

-- schedules
SELECT name, spec, task, next_us, last_us, paused, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint), paused_us, actor, reason FROM xq_schedule
    WHERE queue = 'page' AND next_us IS NOT NULL
    ORDER BY name;

-- next firings
SELECT queue, name, next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL;

-- due schedule
SELECT spec, task, next_us, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE queue = 'page' AND name = :name AND paused IS NULL AND next_us <= CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FOR NO KEY UPDATE SKIP LOCKED;

-- begin wait
INSERT INTO "page_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- ends
SELECT waiter, event, target FROM "page_xq_wait"
    WHERE event IS NOT NULL;

-- end wait
DELETE FROM "page_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- forget waits
DELETE FROM "page_xq_wait"
    WHERE session IN (:uuids);

-- waiting
SELECT k0, session, since FROM "page_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- any ready
SELECT 1 FROM "page"
    WHERE "status" = 'R' LIMIT 1;

-- next due
SELECT 'T runat' AS duty, at - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT "runat" AS at FROM "page"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'W runat' AS duty, at - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT "runat" AS at FROM "page"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 'untimed' AS duty, at - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT 0 AS at FROM "page"
    WHERE "status" = 'T' AND ("xq_owner" IS NULL OR substr("xq_owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times;

-- taken
SELECT "id", "xq_owner" FROM "page"
    WHERE "status" = 'T';

-- counters
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "page_xq_count"
    GROUP BY tube, source, target;

-- actual counts
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2;

-- audit
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "page_xq_count"
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2) AS actual;

-- add counter
INSERT INTO "page_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- look
SELECT "id", "url", "title", "status", "runat", "xq_owner", "xq_owner" FROM "page"
    WHERE "id" = :k0;

-- look at all
SELECT "id", "url", "title", "status", "runat", "xq_owner", "xq_owner" FROM "page"
    WHERE ("id" = ANY(ARRAY(SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed)) AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed));

-- maintenance, for this queue and others: what other processes may have changed
SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n FROM xq_queue
    WHERE name IN ('page')
    UNION ALL
    SELECT 'pause', queue, tube, '', whole FROM xq_pause
    UNION ALL
    SELECT 'schedule', queue, name, '', next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL
    UNION ALL
    SELECT 'cancelled', '', name, '', 0 FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:'
    UNION ALL
    SELECT 'read only', '', '', '', 1
    WHERE pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean);

-- maintenance, for this queue and others: when is a task due, and is one ready
SELECT 0 AS place, 'T runat' AS duty, at - COALESCE(CAST(NULL AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT "runat" AS at FROM "page"
    WHERE "status" = 'T' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'W runat' AS duty, at - COALESCE(CAST(NULL AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT "runat" AS at FROM "page"
    WHERE "status" = 'W' AND "runat" IS NOT NULL
    ORDER BY "runat" LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'untimed' AS duty, at - COALESCE(CAST(NULL AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) AS seconds FROM (SELECT 0 AS at FROM "page"
    WHERE "status" = 'T' AND ("xq_owner" IS NULL OR substr("xq_owner", 1, 1) = '-') AND "runat" IS NULL LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'ready' AS duty, 0.0 AS seconds FROM (SELECT 1 FROM "page"
    WHERE "status" = 'R' LIMIT 1) AS ready;

-- maintenance, for this queue and others: who owns tasks and is not registered
SELECT DISTINCT place, uuid FROM (SELECT 0 AS place, substr("xq_owner", 1, 36) AS uuid FROM "page"
    WHERE "status" = 'T'
    UNION ALL
    SELECT 0 AS place, session AS uuid FROM "page_xq_wait") AS found
    WHERE uuid NOT IN (SELECT uuid FROM xq_session);

-- maintenance, for this queue and others: which have many counters
SELECT 0 FROM (SELECT 1 AS one FROM "page_xq_count" LIMIT 1 OFFSET 100) AS counters;

-- forget the queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'page';

-- forget the queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'page';

-- forget the queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'page';

-- forget the queue in xq_generation
DELETE FROM xq_generation
    WHERE queue = 'page';

-- forget the queue in xq_object
DELETE FROM xq_object
    WHERE queue = 'page';

-- forget the queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'page';

-- lock before a kill in several states
SELECT COUNT(*) FROM (SELECT 1 FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D') FOR NO KEY UPDATE) AS held;

-- R T W B D by_state
SELECT "id", "url", "title", "status", "runat", "xq_owner" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n;
