-- Utubes, of which two tasks are taken at a time; priority and ttr.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status after WHERE only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, version VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, fingerprint LONGTEXT NOT NULL, puts BIGINT NOT NULL DEFAULT 0) ENGINE = InnoDB;

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, pid BIGINT, program VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, PRIMARY KEY (uuid, queue)) ENGINE = InnoDB;

-- install: the table xq_session
BEGIN NOT ATOMIC IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'xq_session' AND column_name = 'program') THEN ALTER TABLE xq_session ADD COLUMN host VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin,
        ADD COLUMN pid BIGINT,
        ADD COLUMN program VARCHAR(60) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_nopad_bin; END IF; END;

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, value DOUBLE PRECISION NOT NULL) ENGINE = InnoDB;

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, tube VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (queue, tube, whole)) ENGINE = InnoDB;

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, spec LONGTEXT NOT NULL, task LONGTEXT NOT NULL, next_us BIGINT, PRIMARY KEY (queue, name)) ENGINE = InnoDB;

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, bucket VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket)) ENGINE = InnoDB;

-- install: the table xq_operation
CREATE TABLE IF NOT EXISTS xq_operation (id BIGINT AUTO_INCREMENT PRIMARY KEY, queue VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, filter LONGTEXT NOT NULL, options LONGTEXT NOT NULL, actor LONGTEXT, reason LONGTEXT, chunk INTEGER NOT NULL, created_us BIGINT NOT NULL, updated_us BIGINT NOT NULL, reached LONGTEXT, done BIGINT NOT NULL, skipped BIGINT NOT NULL, looked BIGINT NOT NULL, state VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL) ENGINE = InnoDB;

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, slot INTEGER NOT NULL, session VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, PRIMARY KEY (name, slot)) ENGINE = InnoDB;

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process)) ENGINE = InnoDB;

-- install: the table visit_xq_count
CREATE TABLE IF NOT EXISTS `visit_xq_count` (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, source VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL, n BIGINT NOT NULL) ENGINE = InnoDB;

-- install: the table visit_xq_wait
CREATE TABLE IF NOT EXISTS `visit_xq_wait` (waiter VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', session VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT '', since DOUBLE, event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, target VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, PRIMARY KEY (k0, waiter)) ENGINE = InnoDB AS
    SELECT `id` AS k0 FROM `visit` LIMIT 0;

-- install: the table visit_xq_utube_2
CREATE TABLE IF NOT EXISTS `visit_xq_utube_2` (utube CHAR(64) CHARACTER SET ascii DEFAULT '' PRIMARY KEY, taken BIGINT NOT NULL DEFAULT 0 CHECK (taken <= 2)) ENGINE = InnoDB AS
    SELECT `visit`.`priority` AS priority, `visit`.`id` AS k0 FROM `visit`
    UNION ALL
    SELECT NULL, NULL LIMIT 0;

-- install: the table visit_xq_utube_2
ALTER TABLE `visit_xq_utube_2` DROP INDEX IF EXISTS `open`, DROP COLUMN IF EXISTS open, ADD COLUMN open BOOLEAN GENERATED ALWAYS AS (taken < 2 AND k0 IS NOT NULL) STORED INVISIBLE, ADD INDEX `open` (open, priority, k0);

-- install: the table visit_xq_dirty_groups
CREATE TABLE IF NOT EXISTS `visit_xq_dirty_groups` (id BIGINT AUTO_INCREMENT PRIMARY KEY, utube CHAR(64) CHARACTER SET ascii, writer BIGINT) ENGINE = InnoDB;

-- install: the index visit_xq_oldest_R
CREATE INDEX IF NOT EXISTS `visit_xq_oldest_R`
    ON `visit` (`status`, `priority`, `id`);

-- install: the index visit_xq_utube
ALTER TABLE `visit` DROP INDEX IF EXISTS `visit_xq_utube`, DROP COLUMN IF EXISTS `visit_xq_turn`, ADD COLUMN `visit_xq_turn` CHAR(64) CHARACTER
    SET ascii GENERATED ALWAYS AS (SHA2(CONVERT(`host` USING utf8mb4), 256)) STORED INVISIBLE,
        ADD INDEX `visit_xq_utube` (`status`, `visit_xq_turn`, `priority`, `id`);

-- install: the index visit_xq_runat
CREATE INDEX IF NOT EXISTS `visit_xq_runat`
    ON `visit` (`status`, `runat`);

-- install: the trigger visit_xq_insert
CREATE OR REPLACE TRIGGER `visit_xq_insert` AFTER INSERT
    ON `visit` FOR EACH ROW BEGIN
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END;
    IF new_state <> 'X' THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', 'X', new_state, 1);
    END IF;
    IF (((NEW.`host` IS NOT NULL AND COALESCE((NEW.`status` IN ('R', 'T') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) <> 0) THEN INSERT INTO `visit_xq_utube_2` (utube, taken)
        VALUES (CONVERT(SHA2(CONVERT(NEW.`host` USING utf8mb4), 256) USING ascii), (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END))
        ON DUPLICATE KEY UPDATE taken = taken +
        VALUES(taken), priority = NULL, k0 = NULL;
    END IF;
    IF (((NEW.`host` IS NOT NULL AND COALESCE((NEW.`status` IN ('R', 'T') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND TRUE) THEN INSERT INTO `visit_xq_dirty_groups` (utube, writer)
        VALUES (CONVERT(SHA2(CONVERT(NEW.`host` USING utf8mb4), 256) USING ascii), CONNECTION_ID());
    END IF;
END;

-- install: the trigger visit_xq_update
CREATE OR REPLACE TRIGGER `visit_xq_update` AFTER UPDATE
    ON `visit` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END;
    DECLARE new_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END;
    DECLARE other_key BOOLEAN DEFAULT NOT (BINARY OLD.`id` <=> BINARY NEW.`id`);
    IF old_state <> new_state THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', old_state, new_state, 1);
    END IF;
    IF old_state IN ('R', 'T') AND (new_state NOT IN ('R', 'T') OR other_key) AND EXISTS (SELECT 1 FROM `visit_xq_wait`) THEN UPDATE `visit_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = IF(other_key, 'X', new_state)
        WHERE k0 = OLD.`id` AND event IS NULL;
    END IF;
    IF ((((NOT (BINARY OLD.`host` <=> BINARY NEW.`host`)) OR NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR NOT (BINARY OLD.`priority` <=> BINARY NEW.`priority`) OR NOT (BINARY OLD.`id` <=> BINARY NEW.`id`)) AND (OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND (CASE WHEN NOT (BINARY OLD.`host` <=> BINARY NEW.`host`) THEN 0 ELSE (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) END) - (CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) <> 0) THEN INSERT INTO `visit_xq_utube_2` (utube, taken)
        VALUES (CONVERT(SHA2(CONVERT(OLD.`host` USING utf8mb4), 256) USING ascii), (CASE WHEN NOT (BINARY OLD.`host` <=> BINARY NEW.`host`) THEN 0 ELSE (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) END) - (CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END))
        ON DUPLICATE KEY UPDATE taken = taken +
        VALUES(taken), priority = NULL, k0 = NULL;
    END IF;
    IF ((((NOT (BINARY OLD.`host` <=> BINARY NEW.`host`)) OR NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR NOT (BINARY OLD.`priority` <=> BINARY NEW.`priority`) OR NOT (BINARY OLD.`id` <=> BINARY NEW.`id`)) AND (OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND TRUE) THEN INSERT INTO `visit_xq_dirty_groups` (utube, writer)
        VALUES (CONVERT(SHA2(CONVERT(OLD.`host` USING utf8mb4), 256) USING ascii), CONNECTION_ID());
    END IF;
    IF ((((NOT (BINARY OLD.`host` <=> BINARY NEW.`host`)) OR (NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR NOT (BINARY OLD.`priority` <=> BINARY NEW.`priority`) OR NOT (BINARY OLD.`id` <=> BINARY NEW.`id`)) AND NOT (OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND (NEW.`host` IS NOT NULL AND COALESCE((NEW.`status` IN ('R', 'T') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) <> 0) THEN INSERT INTO `visit_xq_utube_2` (utube, taken)
        VALUES (CONVERT(SHA2(CONVERT(NEW.`host` USING utf8mb4), 256) USING ascii), (CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END))
        ON DUPLICATE KEY UPDATE taken = taken +
        VALUES(taken), priority = NULL, k0 = NULL;
    END IF;
    IF ((((NOT (BINARY OLD.`host` <=> BINARY NEW.`host`)) OR (NOT (BINARY OLD.`status` <=> BINARY NEW.`status`) OR NOT (BINARY OLD.`priority` <=> BINARY NEW.`priority`) OR NOT (BINARY OLD.`id` <=> BINARY NEW.`id`)) AND NOT (OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND (NEW.`host` IS NOT NULL AND COALESCE((NEW.`status` IN ('R', 'T') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND TRUE) THEN INSERT INTO `visit_xq_dirty_groups` (utube, writer)
        VALUES (CONVERT(SHA2(CONVERT(NEW.`host` USING utf8mb4), 256) USING ascii), CONNECTION_ID());
    END IF;
END;

-- install: the trigger visit_xq_delete
CREATE OR REPLACE TRIGGER `visit_xq_delete` AFTER DELETE
    ON `visit` FOR EACH ROW BEGIN
    DECLARE old_state CHAR(1) CHARACTER
        SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END;
    IF old_state <> 'X' THEN INSERT INTO `visit_xq_count` (tube, source, target, n)
        VALUES ('', old_state, 'X', 1);
    END IF;
    IF old_state IN ('R', 'T') AND EXISTS (SELECT 1 FROM `visit_xq_wait`) THEN UPDATE `visit_xq_wait`
        SET event = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'visit' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'),
            target = 'X'
        WHERE k0 = OLD.`id` AND event IS NULL;
    END IF;
    IF (((OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND -(CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END) <> 0) THEN INSERT INTO `visit_xq_utube_2` (utube, taken)
        VALUES (CONVERT(SHA2(CONVERT(OLD.`host` USING utf8mb4), 256) USING ascii), -(CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END))
        ON DUPLICATE KEY UPDATE taken = taken +
        VALUES(taken), priority = NULL, k0 = NULL;
    END IF;
    IF (((OLD.`host` IS NOT NULL AND COALESCE((OLD.`status` IN ('R', 'T') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AND TRUE) THEN INSERT INTO `visit_xq_dirty_groups` (utube, writer)
        VALUES (CONVERT(SHA2(CONVERT(OLD.`host` USING utf8mb4), 256) USING ascii), CONNECTION_ID());
    END IF;
END;

-- install: count what is there
INSERT INTO `visit_xq_count` (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit` WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM `visit_xq_count`);

-- install, recount: the heads of utubes
DELETE FROM `visit_xq_utube_2`;

-- install, recount: the heads of utubes
INSERT INTO `visit_xq_utube_2` (utube, taken)
    SELECT CONVERT(SHA2(CONVERT(`visit`.`host` USING utf8mb4), 256) USING ascii), SUM((CASE WHEN (`visit`.`status` = 'T' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END)) FROM `visit`
    WHERE (`visit`.`host` IS NOT NULL AND COALESCE((`visit`.`status` IN ('R', 'T') AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))
    GROUP BY 1
    ORDER BY 1
    ON DUPLICATE KEY UPDATE taken = taken +
    VALUES(taken), priority = NULL, k0 = NULL;

-- install, recount: the heads of utubes
INSERT INTO `visit_xq_dirty_groups` (utube, writer)
    SELECT DISTINCT CONVERT(SHA2(CONVERT(`visit`.`host` USING utf8mb4), 256) USING ascii), CONNECTION_ID() FROM `visit`
    WHERE (`visit`.`host` IS NOT NULL AND COALESCE((`visit`.`status` IN ('R') AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R')), FALSE));

-- install: record what is installed
DELETE FROM xq_queue
    WHERE name = 'visit';

-- install: record what is installed
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('visit', 'VERSION', 'FINGERPRINT');

-- X put R: 1
INSERT INTO `visit` (`url`, `host`, `priority`, `status`, `runat`, `owner`)
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL)
    RETURNING `id`, `url`, `host`, `status`, `runat`, `priority`, `owner`;

-- X put R: 2
INSERT INTO `visit` (`url`, `host`, `priority`, `status`, `runat`, `owner`)
    VALUES (:f1_0, :f2_0, :f5_0, 'R', NULL, NULL), (:f1_1, :f2_1, :f5_1, 'R', NULL, NULL)
    RETURNING `id`, `url`, `host`, `status`, `runat`, `priority`, `owner`;

-- R take T: the oldest
SELECT `visit`.`id` FROM `visit_xq_utube_2` AS xq_h FORCE INDEX (open) STRAIGHT_JOIN `visit` FORCE INDEX (PRIMARY)
    ON xq_h.k0 = `visit`.`id`
    WHERE xq_h.open = 1 AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY xq_h.priority, xq_h.k0 LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'T',
        `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 60.0,
        `owner` = :owner
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- R take T: the n oldest
SELECT `visit`.`id` FROM `visit_xq_utube_2` AS xq_h FORCE INDEX (open) STRAIGHT_JOIN `visit` FORCE INDEX (PRIMARY)
    ON xq_h.k0 = `visit`.`id`
    WHERE xq_h.open = 1 AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY xq_h.priority, xq_h.k0 LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'T',
        `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 60.0,
        `owner` = :owner
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- R take T with ttr: the oldest
SELECT `visit`.`id` FROM `visit_xq_utube_2` AS xq_h FORCE INDEX (open) STRAIGHT_JOIN `visit` FORCE INDEX (PRIMARY)
    ON xq_h.k0 = `visit`.`id`
    WHERE xq_h.open = 1 AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY xq_h.priority, xq_h.k0 LIMIT 1 FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'T',
        `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr,
        `owner` = :owner
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- R take T with ttr: the n oldest
SELECT `visit`.`id` FROM `visit_xq_utube_2` AS xq_h FORCE INDEX (open) STRAIGHT_JOIN `visit` FORCE INDEX (PRIMARY)
    ON xq_h.k0 = `visit`.`id`
    WHERE xq_h.open = 1 AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY xq_h.priority, xq_h.k0 LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'T',
        `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr,
        `owner` = :owner
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T ack X: one, of this session
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: many, of this session
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` IN (:listed) AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: one, of this very take
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` = :token FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X: many, of this very take
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` IN (:listed) AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` = :token FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ack X with update={'url': ...}: one
SELECT `visit`.`id`, :f1, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T release R: one, of this session
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T release R: many, of this session
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` IN (:listed) AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T release R: one, of this very take
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T release R: many, of this very take
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` IN (:listed) AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T release R: n of a session
SELECT `visit`.`id` FROM `visit`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` >= :session AND `owner` < :session_end LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T release R: n, whosesoever
UPDATE `visit`
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T');

-- T release R: n, whosesoever, returned
SELECT `visit`.`id` FROM `visit`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T snatch R: one
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T touch T with increment: one, of this session
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- T touch T with increment: one, of this very take
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `owner` = :token FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- R switch R: one
SELECT `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- R T kill X: one
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- R T kill X: many
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE `visit`.`id` IN (:listed) AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T ttr R: n that are due by runat
SELECT `visit`.`id` FROM `visit` FORCE INDEX (`visit_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;
-- and where that returns rows
UPDATE `visit` FORCE INDEX (PRIMARY)
    SET `status` = 'R',
        `runat` = NULL,
        `owner` = NULL
    WHERE :chosen;
-- and returned are
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE :chosen;

-- kill in RT: n, whosesoever
DELETE `visit` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL;

-- kill in RT: n, whosesoever, returned
SELECT `visit`.`id`, `visit`.`url`, `visit`.`host`, `visit`.`status`, `visit`.`runat`, `visit`.`priority`, `visit`.`owner`, `visit`.`id` FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) FOR UPDATE;
-- and where that returns rows
DELETE FROM `visit`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- before a kill in each of several states, of which events are counted
SELECT COUNT(*) FROM `visit` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) FOR UPDATE;

-- look at one task, and at who holds it
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner`, `owner` FROM `visit`
    WHERE `id` = :k0;

-- R T by_state
SELECT `id`, `url`, `host`, `status`, `runat`, `priority`, `owner` FROM `visit`
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R')
    ORDER BY `priority`, `id` LIMIT :n;

-- taken
SELECT `id`, `owner` FROM `visit`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T');

-- stats
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `visit_xq_count`
    GROUP BY tube, source, target;

-- check, recount: what the table holds
SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit`
    WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T'))
    GROUP BY 1, 2;

-- check: heads of utubes that are wrong
SELECT (SELECT COUNT(*) FROM (SELECT CONVERT(SHA2(CONVERT(`visit`.`host` USING utf8mb4), 256) USING ascii) AS utube, SUM((CASE WHEN (`visit`.`status` = 'T' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') THEN 1 ELSE 0 END)) AS taken FROM `visit` WHERE (`visit`.`host` IS NOT NULL AND COALESCE((`visit`.`status` IN ('R', 'T') AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE)) GROUP BY 1) AS xq_t LEFT JOIN `visit_xq_utube_2` AS xq_h ON xq_h.utube = xq_t.utube WHERE COALESCE(xq_h.taken, 0) <> xq_t.taken OR (xq_t.taken < 2 AND (xq_h.utube IS NULL OR NOT (BINARY xq_h.priority <=> BINARY (SELECT xq_first.`priority` FROM `visit` AS xq_first FORCE INDEX (`visit_xq_utube`) WHERE xq_first.`visit_xq_turn` = xq_t.utube AND (xq_first.`status` = 'R' AND CONVERT(xq_first.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') ORDER BY xq_first.`priority`, xq_first.`id` LIMIT 1)) OR NOT (BINARY xq_h.k0 <=> BINARY (SELECT xq_first.`id` FROM `visit` AS xq_first FORCE INDEX (`visit_xq_utube`) WHERE xq_first.`visit_xq_turn` = xq_t.utube AND (xq_first.`status` = 'R' AND CONVERT(xq_first.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') ORDER BY xq_first.`priority`, xq_first.`id` LIMIT 1))) AND xq_t.utube NOT IN (SELECT utube FROM `visit_xq_dirty_groups`))) + (SELECT COUNT(*) FROM (SELECT utube FROM `visit_xq_utube_2` AS xq_h WHERE TRUE AND xq_h.utube NOT IN (SELECT utube FROM `visit_xq_dirty_groups`) EXCEPT SELECT CONVERT(SHA2(CONVERT(`visit`.`host` USING utf8mb4), 256) USING ascii) FROM `visit` WHERE (`visit`.`host` IS NOT NULL AND COALESCE((`visit`.`status` IN ('R', 'T') AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')), FALSE))) AS xq_e);

-- check, recount: the counters beside it, at one moment
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `visit_xq_count`
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' ELSE 'X' END AS state, COUNT(*) AS n FROM `visit` WHERE (`status` IN ('R', 'T') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin IN ('R', 'T')) GROUP BY 1, 2) AS actual;

-- recount, reset: add to a counter
INSERT INTO `visit_xq_count` (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- on_change: whether a change was committed
CREATE TEMPORARY TABLE IF NOT EXISTS xq_savepoint (number BIGINT PRIMARY KEY) ENGINE = InnoDB;

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
    WHERE queue = 'visit' AND state <> 'running' AND chunk > 0 AND updated_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - :kept_us;

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
    VALUES (:uuid, '', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program), (:uuid, 'visit', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program)
    ON DUPLICATE KEY UPDATE uuid = uuid;

-- session: go on, for good or for a while
UPDATE xq_session
    SET ends = COALESCE(:now, (@@timestamp * 1e0)) + :lease,
        host = :host,
        pid = :pid,
        program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- session: join
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- session: end later, with session_ttr
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (@@timestamp * 1e0)) + (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid = :uuid AND (SELECT value FROM xq_setting WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session: whether it is to end
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends IS NOT NULL;

-- session: whether it is over
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND ends <= COALESCE(:now, (@@timestamp * 1e0)) FOR UPDATE;

-- session: end
DELETE FROM xq_session
    WHERE uuid = :uuid AND queue = :queue;

-- sessions: who lives, where, and for how long
SELECT uuid, queue, ends - COALESCE(:now, (@@timestamp * 1e0)) FROM xq_session;

-- configure
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value)
    ON DUPLICATE KEY UPDATE value = :value;

-- pause
INSERT INTO xq_pause (queue, tube, whole)
    VALUES ('visit', :tube, :whole)
    ON DUPLICATE KEY UPDATE queue = queue;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'visit' AND tube = :tube AND whole = :whole;

-- paused
SELECT queue, tube, whole FROM xq_pause;

-- every: the time
SELECT CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED);

-- every: a new schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('visit', :name, :spec, :task, :next_us)
    ON DUPLICATE KEY UPDATE queue = queue;

-- every, unschedule: the schedule of this name
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'visit' AND name = :name FOR UPDATE;

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
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL;

-- a schedule that fires
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE queue = 'visit' AND name = :name AND next_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FOR UPDATE SKIP LOCKED;

-- wait: begin
INSERT INTO `visit_xq_wait` (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (@@timestamp * 1e0)));

-- wait: how tasks ended
SELECT waiter, event, target FROM `visit_xq_wait`
    WHERE event IS NOT NULL;

-- wait: end
DELETE FROM `visit_xq_wait`
    WHERE k0 = :k0 AND waiter = :waiter
    RETURNING event, target;

-- wait: forget those of a process that is gone
DELETE FROM `visit_xq_wait`
    WHERE session = :uuid;

-- waiting
SELECT k0, session, since FROM `visit_xq_wait`
    WHERE event IS NULL
    ORDER BY since;

-- a take that waits: is there anything
SELECT 1 FROM DUAL
    WHERE EXISTS (SELECT 1 FROM `visit_xq_utube_2` AS xq_h FORCE INDEX (open) STRAIGHT_JOIN `visit` FORCE INDEX (PRIMARY) ON xq_h.k0 = `visit`.`id` WHERE xq_h.open = 1 AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') ORDER BY xq_h.priority, xq_h.k0 LIMIT 1) OR EXISTS (SELECT 1 FROM `visit` FORCE INDEX (`visit_xq_utube`) WHERE `visit`.`visit_xq_turn` IS NULL AND (`visit`.`status` = 'R' AND CONVERT(`visit`.`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'R') ORDER BY `visit`.`priority`, `visit`.`id` LIMIT 1) OR EXISTS (SELECT 0 FROM `visit_xq_dirty_groups` LIMIT 1);

-- when something falls due
SELECT MIN(at) - COALESCE(:now, (@@timestamp * 1e0)) FROM (SELECT (SELECT `runat` FROM `visit` FORCE INDEX (`visit_xq_runat`) WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin = 'T') AND `runat` IS NOT NULL ORDER BY `runat` LIMIT 1) AS at UNION ALL SELECT (SELECT 0 FROM `visit_xq_dirty_groups` LIMIT 1) AS at) AS times;

-- what tasks there are, before another definition is installed
SELECT CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_nopad_bin, COUNT(*) FROM `visit`
    GROUP BY 1;
