-- The queue of the README: delayed, buried, keep, ttr. Who took what is in a side table.
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

-- install: the table page_xq_count
CREATE TABLE IF NOT EXISTS "page_xq_count" (tube text, source text, target text, n bigint NOT NULL);

-- install: the table page_xq_count
ALTER TABLE "page_xq_count"
    SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- install: the table page_xq_wait
CREATE TABLE IF NOT EXISTS "page_xq_wait" AS
    SELECT "id" AS k0, CAST('' AS text) AS waiter, CAST('' AS text) AS session, CAST(0 AS float8) AS since, CAST('' AS text) AS event, CAST('' AS text) AS target FROM "page" WITH NO DATA;

-- install: the table page_xq_wait
CREATE UNIQUE INDEX IF NOT EXISTS "page_xq_wait_key"
    ON "page_xq_wait" (k0, waiter);

-- install: the table page_xq_owner
CREATE TABLE IF NOT EXISTS "page_xq_owner" AS
    SELECT "id", CAST('' AS text) AS owner FROM "page" WITH NO DATA;

-- install: the table page_xq_owner
CREATE UNIQUE INDEX IF NOT EXISTS "page_xq_owner_key"
    ON "page_xq_owner" ("id");

-- install: the index page_xq_oldest_R
CREATE INDEX IF NOT EXISTS "page_xq_oldest_R"
    ON "page" ("id")
    WHERE "status" = 'R';

-- install: the index page_xq_oldest_B
CREATE INDEX IF NOT EXISTS "page_xq_oldest_B"
    ON "page" ("id")
    WHERE "status" = 'B';

-- install: the index page_xq_runat
CREATE INDEX IF NOT EXISTS "page_xq_runat"
    ON "page" ("status", "runat")
    WHERE "status" = 'T' OR "runat" IS NOT NULL;

-- install: the trigger page_xq_insert
DROP TRIGGER IF EXISTS "page_xq_insert"
    ON "page";

-- install: the trigger page_xq_insert
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_insert"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."page_xq_count" (tube, source, target, n) SELECT '''', ''X'', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, COUNT(*) FROM changed WHERE changed."status" IN (''R'', ''T'', ''W'', ''B'', ''D'') GROUP BY 1, 2, 3; IF (EXISTS (SELECT 1 FROM changed WHERE (changed."status" = ''R'' AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (changed."status" = ''T'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (changed."status" = ''W'' AND changed."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "page_xq_insert" AFTER INSERT
        ON "page" REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_insert"();
END $xqx$;

-- install: the trigger page_xq_delete
DROP TRIGGER IF EXISTS "page_xq_delete"
    ON "page";

-- install: the trigger page_xq_delete
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_delete"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."page_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM changed WHERE changed."status" IN (''R'', ''T'', ''W'', ''B'', ''D'') GROUP BY 1, 2, 3; DELETE FROM "@here@"."page_xq_owner" AS o USING (SELECT * FROM changed) AS changed WHERE o."id" = changed."id" AND changed."status" = ''T''; IF (EXISTS (SELECT 1 FROM "@here@"."page_xq_wait")) THEN UPDATE "@here@"."page_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (''R'', ''T'', ''W''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "page_xq_delete" AFTER DELETE
        ON "page" REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_delete"();
END $xqx$;

-- install: the trigger page_xq_truncate
DROP TRIGGER IF EXISTS "page_xq_truncate"
    ON "page";

-- install: the trigger page_xq_truncate
DO $xqx$ BEGIN
    EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_truncate"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN INSERT INTO "@here@"."page_xq_count" (tube, source, target, n) SELECT '''', CASE changed."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, ''X'', COUNT(*) FROM "@here@"."page" AS changed WHERE changed."status" IN (''R'', ''T'', ''W'', ''B'', ''D'') GROUP BY 1, 2, 3; DELETE FROM "@here@"."page_xq_owner" AS o USING (SELECT * FROM "@here@"."page" AS changed) AS changed WHERE o."id" = changed."id" AND changed."status" = ''T''; IF (EXISTS (SELECT 1 FROM "@here@"."page_xq_wait")) THEN UPDATE "@here@"."page_xq_wait" AS w SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = ''X'' FROM "@here@"."page" AS changed WHERE w.k0 = changed."id" AND w.event IS NULL AND changed."status" IN (''R'', ''T'', ''W''); IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "page_xq_truncate" BEFORE TRUNCATE
        ON "page" FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_truncate"();
END $xqx$;

-- install: the trigger page_xq_update
DROP TRIGGER IF EXISTS "page_xq_update"
    ON "page";

-- install: the trigger page_xq_update
DO $xqx$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass('"page"')) THEN EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    DECLARE pair record; old "@here@"."page"; new "@here@"."page"; BEGIN FOR pair IN SELECT CAST(was.* AS "@here@"."page") AS was, CAST(became.* AS "@here@"."page") AS became FROM was FULL JOIN became ON was."id" = became."id" LOOP old := pair.was; new := pair.became; CONTINUE WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) IS NOT TRUE; IF (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END <> CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END) THEN INSERT INTO "@here@"."page_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, 1); END IF; IF (OLD."status" = ''T'' AND (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."page_xq_owner" WHERE "page_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."status" IN (''R'', ''T'', ''W''), FALSE) AND (NOT COALESCE(NEW."status" IN (''R'', ''T'', ''W''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."page_xq_wait")) THEN UPDATE "@here@"."page_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = ''R'') AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."status" = ''T'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (NEW."status" = ''W'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END LOOP; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "page_xq_update" AFTER UPDATE
        ON "page" REFERENCING OLD TABLE AS was NEW TABLE AS became FOR EACH STATEMENT EXECUTE FUNCTION "page_xq_update"();
    ELSE EXECUTE replace('CREATE OR REPLACE FUNCTION "page_xq_update"() RETURNS trigger LANGUAGE plpgsql AS $xq$ #variable_conflict use_variable
    BEGIN IF (CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END <> CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END) THEN INSERT INTO "@here@"."page_xq_count" (tube, source, target, n) VALUES ('''', CASE OLD."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END, 1); END IF; IF (OLD."status" = ''T'' AND (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id")) THEN DELETE FROM "@here@"."page_xq_owner" WHERE "page_xq_owner"."id" = OLD."id"; END IF; IF (COALESCE(OLD."status" IN (''R'', ''T'', ''W''), FALSE) AND (NOT COALESCE(NEW."status" IN (''R'', ''T'', ''W''), FALSE) OR OLD."id" IS DISTINCT FROM NEW."id") AND EXISTS (SELECT 1 FROM "@here@"."page_xq_wait")) THEN UPDATE "@here@"."page_xq_wait" SET event = CASE WHEN split_part(current_setting(''xq.context'', true), '''', 2) = ''page'' AND split_part(current_setting(''xq.context'', true), '''', 4) = CAST(extract(epoch FROM statement_timestamp()) AS text) THEN split_part(current_setting(''xq.context'', true), '''', 1) ELSE ''write'' END, target = CASE WHEN OLD."id" IS DISTINCT FROM NEW."id" THEN ''X'' ELSE CASE NEW."status" WHEN ''R'' THEN ''R'' WHEN ''T'' THEN ''T'' WHEN ''W'' THEN ''W'' WHEN ''B'' THEN ''B'' WHEN ''D'' THEN ''D'' ELSE ''X'' END END WHERE k0 = OLD."id" AND event IS NULL; IF FOUND THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; END IF; IF (((NEW."status" = ''R'') AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''' AND waits)) OR (NEW."status" = ''T'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = '''')) OR (NEW."status" = ''W'' AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0) AND EXISTS (SELECT 1 FROM "@here@".xq_alive WHERE uuid = ''''))) THEN PERFORM pg_notify(''xq'', '''') WHERE NOT EXISTS (SELECT 1 FROM "@here@".xq_setting WHERE name = ''notify'' AND value = 0); END IF; RETURN NULL; END $xq$', '"@here@"', quote_ident(current_schema()));
    CREATE TRIGGER "page_xq_update" AFTER UPDATE
        ON "page" FOR EACH ROW WHEN (OLD."status" IS DISTINCT FROM NEW."status" OR OLD."id" IS DISTINCT FROM NEW."id" OR (OLD."runat" IS DISTINCT FROM NEW."runat" AND NEW."runat" < (CAST(extract(epoch FROM statement_timestamp()) AS float8) + 1.0))) EXECUTE FUNCTION "page_xq_update"();
    END IF;
END $xqx$;

-- install: count what is there
INSERT INTO "page_xq_count" (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page" WHERE "status" IN ('R', 'T', 'W', 'B', 'D') GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM "page_xq_count");

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'page';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('page', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO "page" ("url", "title", "status", "runat")
    VALUES (:f1_0, :f2_0, 'R', NULL)
    RETURNING "id", "url", "title", "status", "runat";

-- X put R: 2
INSERT INTO "page" ("url", "title", "status", "runat")
    VALUES (:f1_0, :f2_0, 'R', NULL), (:f1_1, :f2_1, 'R', NULL)
    RETURNING "id", "url", "title", "status", "runat";

-- X put W with delay: 1
INSERT INTO "page" ("url", "title", "status", "runat")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8))
    RETURNING "id", "url", "title", "status", "runat";

-- X put W with delay: 2
INSERT INTO "page" ("url", "title", "status", "runat")
    VALUES (:f1_0, :f2_0, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)), (:f1_1, :f2_1, 'W', COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8))
    RETURNING "id", "url", "title", "status", "runat";

-- R take T: the oldest
WITH moved AS (UPDATE "page" SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8) WHERE "id" = (SELECT "id" FROM "page" WHERE "status" = 'R' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "id", "url", "title", "status", "runat"), remembered AS (INSERT INTO "page_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T: the n oldest
WITH moved AS (UPDATE "page" SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(60.0 AS float8) WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'R' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked) RETURNING "id", "url", "title", "status", "runat"), remembered AS (INSERT INTO "page_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T with ttr: the oldest
WITH moved AS (UPDATE "page" SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8) WHERE "id" = (SELECT "id" FROM "page" WHERE "status" = 'R' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING "id", "url", "title", "status", "runat"), remembered AS (INSERT INTO "page_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- R take T with ttr: the n oldest
WITH moved AS (UPDATE "page" SET "status" = 'T', "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:ttr AS float8) WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'R' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked) RETURNING "id", "url", "title", "status", "runat"), remembered AS (INSERT INTO "page_xq_owner" ("id", owner) SELECT "id", :owner FROM moved ON CONFLICT ("id") DO UPDATE SET owner = excluded.owner)
    SELECT * FROM moved;

-- T ack D: one, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T ack D: many, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T ack D: one, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T ack D: many, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T ack D with update={'url': ...}: one
UPDATE "page"
    SET "url" = :f1,
        "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: one, of this session
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: many, of this session
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: one, of this very take
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: many, of this very take
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: n of a session
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT t."id" FROM "page" AS t, "page_xq_owner" AS o WHERE o."id" = t."id" AND t."status" = 'T' AND o.owner COLLATE "C" >= :session AND o.owner COLLATE "C" < :session_end LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat";

-- T release R: n, whosesoever
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "status" = 'T';

-- T release R: n, whosesoever, returned
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat";

-- T snatch R: one
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat";

-- T touch T with increment: one, of this session
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T touch T with increment: one, of this very take
UPDATE "page"
    SET "runat" = COALESCE("runat", COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8))) + CAST(:increment AS float8)
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- W D restart R: one
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat";

-- R W B D switch R: one
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- R W B D switch W with delay: one
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- R W B D switch B: one
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- R W B D switch D: one
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'D' END,
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- R T W B D kill X: one
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" = :k0 AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- R T W B D kill X: many
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'R'
    RETURNING "id", "url", "title", "status", "runat";

-- W delay R: n that are due by runat
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'W' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) ORDER BY "runat" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat";

-- T bury B: one, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T bury B: many, of this session
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T bury B: one, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T bury B: many, of this very take
UPDATE "page"
    SET "status" = CASE WHEN set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' THEN 'B' END,
        "runat" = NULL
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" IN (SELECT CAST(listed AS bigint) FROM json_array_elements_text(CAST(:keys AS json)) AS listed) AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- B dig R: the oldest
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" = (SELECT "id" FROM "page" WHERE "status" = 'B' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat";

-- B dig R: the n oldest
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'B' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat";

-- B dig R: one
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat";

-- T ttr R: n that are due by runat
UPDATE "page"
    SET "status" = 'R',
        "runat" = NULL
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'T' AND "runat" <= COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) ORDER BY "runat" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat";

-- T release W with delay: one, of this session
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND substr(o.owner, 1, 37) = :session FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T release W with delay: one, of this very take
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" IN (WITH locked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "id" = :k0 AND "status" = 'T' FOR UPDATE), held AS MATERIALIZED (SELECT o."id" FROM "page_xq_owner" AS o, locked WHERE o."id" = locked."id" AND o.owner = :token FOR UPDATE OF o) SELECT * FROM held)
    RETURNING "id", "url", "title", "status", "runat";

-- T snatch W with delay: one
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" = :k0 AND "status" = 'T'
    RETURNING "id", "url", "title", "status", "runat";

-- W D restart W with delay: one
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" = :k0 AND "status" = 'W'
    RETURNING "id", "url", "title", "status", "runat";

-- B dig W with delay: the oldest
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" = (SELECT "id" FROM "page" WHERE "status" = 'B' ORDER BY "id" LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING "id", "url", "title", "status", "runat";

-- B dig W with delay: the n oldest
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" IN (WITH picked AS MATERIALIZED (SELECT "id" FROM "page" WHERE "status" = 'B' ORDER BY "id" LIMIT :n FOR UPDATE SKIP LOCKED) SELECT * FROM picked)
    RETURNING "id", "url", "title", "status", "runat";

-- B dig W with delay: one
UPDATE "page"
    SET "status" = 'W',
        "runat" = COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + CAST(:delay AS float8)
    WHERE "id" = :k0 AND "status" = 'B'
    RETURNING "id", "url", "title", "status", "runat";

-- kill in RTWBD: n, whosesoever
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T', 'W', 'B', 'D');

-- kill in RTWBD: n, whosesoever, returned
DELETE FROM "page"
    WHERE set_config('xq.context', :context || CAST(extract(epoch FROM statement_timestamp()) AS text), true) <> '' AND "status" IN ('R', 'T', 'W', 'B', 'D')
    RETURNING "id", "url", "title", "status", "runat";

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM (SELECT 1 FROM "page" WHERE "status" IN ('R', 'T', 'W', 'B', 'D') FOR UPDATE) AS held;

-- look at one task, and at who holds it
SELECT "id", "url", "title", "status", "runat", (SELECT o.owner FROM "page_xq_owner" AS o WHERE o."id" = "page"."id") FROM "page"
    WHERE "id" = :k0;

-- R T W B D by_state
SELECT "id", "url", "title", "status", "runat" FROM "page"
    WHERE "status" = 'R'
    ORDER BY "id" LIMIT :n;

-- taken
SELECT "id", (SELECT o.owner FROM "page_xq_owner" AS o WHERE o."id" = "page"."id") FROM "page"
    WHERE "status" = 'T';

-- stats
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "page_xq_count"
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page"
    WHERE "status" IN ('R', 'T', 'W', 'B', 'D')
    GROUP BY 1, 2;

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS BIGINT) AS n, COUNT(*) FROM "page_xq_count"
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE "status" WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM "page" WHERE "status" IN ('R', 'T', 'W', 'B', 'D') GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO "page_xq_count" (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) - MIN(age(transactionid)) FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock';

-- on_change: whether a change was committed
SELECT 1
    WHERE pg_xact_status(CAST(CAST(:savepoint AS text) AS xid8)) = 'committed';

-- what is installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page';

-- uninstall: forget this queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'page';

-- uninstall: forget this queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'page';

-- uninstall: forget this queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'page';

-- uninstall: the other queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session: that it is there, and may hold tasks of this queue
INSERT INTO xq_session (uuid, queue, since, ends)
    SELECT :uuid, queue, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)), COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) + :lease FROM (VALUES (''), ('page')) AS mine (queue)
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
    VALUES ('page', :tube, :whole)
    ON CONFLICT (queue, tube, whole) DO NOTHING;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'page' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('page', :name, :spec, :task, :next_us)
    ON CONFLICT (queue, name) DO NOTHING;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'page' AND name = :name FOR UPDATE;

-- every: another schedule; and the next firing of one that fires
UPDATE xq_schedule
    SET spec = :spec,
        task = :task,
        next_us = :next_us
    WHERE queue = 'page' AND name = :name;

-- unschedule
DELETE FROM xq_schedule
    WHERE queue = 'page' AND name = :name;

-- schedules
SELECT name, spec, task, next_us FROM xq_schedule
    WHERE queue = 'page' AND next_us IS NOT NULL
    ORDER BY name;

-- when schedules fire
SELECT queue, name, next_us - CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FROM xq_schedule
    WHERE queue = 'page' AND name = :name AND next_us <= CAST(ROUND(COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) * 1000000) AS bigint) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO "page_xq_wait" (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)));

-- wait: how tasks ended
SELECT waiter, event, target FROM "page_xq_wait"
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM "page_xq_wait"
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM "page_xq_wait"
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM "page_xq_wait"
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM "page"
    WHERE "status" = 'R' LIMIT 1;

-- when something falls due
SELECT MIN(at) - COALESCE(CAST(:now AS float8), CAST(extract(epoch FROM statement_timestamp()) AS float8)) FROM (SELECT (SELECT "runat" FROM "page" WHERE "status" = 'T' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at UNION ALL SELECT (SELECT "runat" FROM "page" WHERE "status" = 'W' AND "runat" IS NOT NULL ORDER BY "runat" LIMIT 1) AS at) AS times;

-- what tasks there are, before another definition is installed
SELECT "status", COUNT(*) FROM "page"
    GROUP BY 1;
