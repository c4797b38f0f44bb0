-- The queue of docs/start/peewee.md: delayed, buried, keep, ttr. The column xq_owner has the tokens.
-- Written by tests/golden/regenerate.py. Where a title names several states, the SQL is that of the first;
-- the others differ in the status only.

-- install: the table xq_queue
CREATE TABLE IF NOT EXISTS xq_queue (name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin PRIMARY KEY, version VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, fingerprint LONGTEXT NOT NULL, puts BIGINT NOT NULL DEFAULT 0) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_session
CREATE TABLE IF NOT EXISTS xq_session (uuid VARCHAR(36) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, since DOUBLE PRECISION NOT NULL, ends DOUBLE PRECISION, host VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, pid BIGINT, program VARCHAR(60) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, PRIMARY KEY (uuid, queue)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_setting
CREATE TABLE IF NOT EXISTS xq_setting (name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin PRIMARY KEY, value DOUBLE PRECISION NOT NULL) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_pause
CREATE TABLE IF NOT EXISTS xq_pause (queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, tube VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, whole INTEGER NOT NULL, since_us BIGINT, actor VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, reason VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, PRIMARY KEY (queue, tube, whole)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_schedule
CREATE TABLE IF NOT EXISTS xq_schedule (queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, spec LONGTEXT NOT NULL, task LONGTEXT NOT NULL, next_us BIGINT, last_us BIGINT, paused INTEGER, paused_us BIGINT, actor VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, reason VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, PRIMARY KEY (queue, name)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_rate
CREATE TABLE IF NOT EXISTS xq_rate (queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, bucket VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, full_us BIGINT NOT NULL, PRIMARY KEY (queue, bucket)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_generation
CREATE TABLE IF NOT EXISTS xq_generation (queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, kind VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, generation INTEGER NOT NULL, version VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, definition LONGTEXT NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY (queue, kind, generation)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_object
CREATE TABLE IF NOT EXISTS xq_object (queue VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, hash LONGTEXT NOT NULL, PRIMARY KEY (queue, name)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_slot
CREATE TABLE IF NOT EXISTS xq_slot (name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, slot INTEGER NOT NULL, session VARCHAR(36) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, PRIMARY KEY (name, slot)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_alive
CREATE TABLE IF NOT EXISTS xq_alive (uuid VARCHAR(36) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, process BIGINT NOT NULL, waits BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (uuid, process)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table xq_alive
CREATE PROCEDURE IF NOT EXISTS xq_watch(found LONGTEXT) SQL SECURITY INVOKER BEGIN DECLARE pause DOUBLE DEFAULT 0.001;
DECLARE ends DOUBLE DEFAULT UNIX_TIMESTAMP(SYSDATE(6)) + 5;
    SET @xq_watch = CONCAT('SELECT ', found, ' INTO @xq_found');
PREPARE xq_watch FROM @xq_watch;
REPEAT DO SLEEP(pause);
    SET pause = LEAST(pause * 1.04, 0.02);
EXECUTE xq_watch;
UNTIL @xq_found OR UNIX_TIMESTAMP(SYSDATE(6)) > ends END REPEAT;
DEALLOCATE PREPARE xq_watch;
    SELECT 1 FROM DUAL
    WHERE @xq_found;
END;

-- install: the table xq_lease
CREATE TABLE IF NOT EXISTS xq_lease (token VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin PRIMARY KEY, ends DOUBLE PRECISION NOT NULL) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table page_xq_count
CREATE TABLE IF NOT EXISTS `page_xq_count` (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, source VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, target VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, n BIGINT NOT NULL) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table page_xq_wait
CREATE TABLE IF NOT EXISTS `page_xq_wait` (waiter VARCHAR(64) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT '', session VARCHAR(36) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT '', since DOUBLE, event VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, target VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, PRIMARY KEY (k0, waiter)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC AS
    SELECT `id` AS k0 FROM `page` LIMIT 0;

-- install: the index page_xq_oldest_R
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'page' AND index_name = _utf8mb4 'page_xq_oldest_R'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `page_xq_oldest_R` ON `page` (`status`, `id`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the index page_xq_oldest_B
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'page' AND index_name = _utf8mb4 'page_xq_oldest_B'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `page_xq_oldest_B` ON `page` (`status`, `id`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the index page_xq_runat
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'page' AND index_name = _utf8mb4 'page_xq_runat'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `page_xq_runat` ON `page` (`status`, `runat`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the trigger page_xq_insert
LOCK TABLES `page` WRITE;

-- install: the trigger page_xq_insert
DROP TRIGGER IF EXISTS `page_xq_insert`;

-- install: the trigger page_xq_insert
CREATE TRIGGER `page_xq_insert` AFTER INSERT ON `page` FOR EACH ROW BEGIN DECLARE new_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END;
IF ('X' <> new_state) THEN
    INSERT INTO `page_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', 'X', new_state, 1);
END IF;
END;

-- install: the trigger page_xq_insert
UNLOCK TABLES;

-- install: the trigger page_xq_update
LOCK TABLES `page` WRITE;

-- install: the trigger page_xq_update
DROP TRIGGER IF EXISTS `page_xq_update`;

-- install: the trigger page_xq_update
CREATE TRIGGER `page_xq_update` AFTER UPDATE ON `page` FOR EACH ROW BEGIN DECLARE old_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END;
DECLARE new_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END;
DECLARE other_key BOOLEAN DEFAULT (NOT (CAST(OLD.`id` AS BINARY) <=> CAST(NEW.`id` AS BINARY)));
IF (((OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') OR ((OLD.`status` IN ('T', 'D') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('T', 'D')) AND (NEW.`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')))) AND NOT (CAST(OLD.`status` AS BINARY) <=> CAST(NEW.`status` AS BINARY)) AND ((OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND NEW.`xq_owner` = CONCAT('-', OLD.`xq_owner`)) IS NOT TRUE AND IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'page' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write') = 'write') THEN
    INSERT INTO `page_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (CONCAT(old_state, '-', new_state, ' write'), 'S', 'S', 1);
END IF;
IF (old_state <> new_state) THEN
    INSERT INTO `page_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', old_state, new_state, 1);
END IF;
IF (((new_state IN ('R', 'T', 'W')) IS NOT TRUE OR other_key) AND old_state IN ('R', 'T', 'W') AND EXISTS (SELECT 1 FROM `page_xq_wait`)) THEN UPDATE `page_xq_wait`
    SET `event` = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'page' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'), `target` = CASE WHEN other_key THEN 'X' ELSE new_state END
    WHERE k0 = OLD.`id` AND event IS NULL;
END IF;
END;

-- install: the trigger page_xq_update
UNLOCK TABLES;

-- install: the trigger page_xq_delete
LOCK TABLES `page` WRITE;

-- install: the trigger page_xq_delete
DROP TRIGGER IF EXISTS `page_xq_delete`;

-- install: the trigger page_xq_delete
CREATE TRIGGER `page_xq_delete` AFTER DELETE ON `page` FOR EACH ROW BEGIN DECLARE old_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END;
IF (old_state <> 'X') THEN
    INSERT INTO `page_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', old_state, 'X', 1);
END IF;
IF (old_state IN ('R', 'T', 'W') AND EXISTS (SELECT 1 FROM `page_xq_wait`)) THEN UPDATE `page_xq_wait`
    SET `event` = IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'page' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write'), `target` = 'X'
    WHERE k0 = OLD.`id` AND event IS NULL;
END IF;
END;

-- install: the trigger page_xq_delete
UNLOCK TABLES;

-- install: the trigger page_xq_left
LOCK TABLES `page` WRITE;

-- install: the trigger page_xq_left
DROP TRIGGER IF EXISTS `page_xq_left`;

-- install: the trigger page_xq_left
CREATE TRIGGER `page_xq_left` BEFORE UPDATE ON `page` FOR EACH ROW BEGIN IF NOT COALESCE((NEW.`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')), FALSE) AND COALESCE((OLD.`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')), FALSE) AND (NOT (CAST(NEW.`runat` AS BINARY) <=> CAST(NULL AS BINARY))) AND (NEW.`xq_owner` IN ('-', '--') AND NOT (CAST(OLD.`xq_owner` AS BINARY) <=> CAST(NEW.`xq_owner` AS BINARY))) IS NOT TRUE THEN
    SET NEW.`runat` = NULL;
END IF;
END;

-- install: the trigger page_xq_left
UNLOCK TABLES;

-- install: record
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition'), version, fingerprint, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_queue
    WHERE name = 'page' AND (version, fingerprint) NOT IN (SELECT version, CONVERT(definition USING utf8mb4) COLLATE utf8mb4_0900_bin FROM xq_generation
    WHERE queue = 'page' AND kind = 'definition');

-- install: record
UPDATE xq_generation
    SET at_us = CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED)
    WHERE queue = 'page' AND kind = 'definition' AND (version, CONVERT(definition USING utf8mb4) COLLATE utf8mb4_0900_bin) = (SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page');

-- install: record
DELETE FROM xq_queue
    WHERE name = 'page';

-- install: record
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('page', 'VERSION', _utf8mb4 'FINGERPRINT');

-- X put R: 1
/*;*/
    INSERT INTO `page` (`url`, `title`, `status`, `runat`, `xq_owner`)
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL);
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page`
    WHERE `id` = LAST_INSERT_ID();

-- X put R: 2
/*;*/
    INSERT INTO `page` (`url`, `title`, `status`, `runat`, `xq_owner`)
    VALUES (:f1_0, :f2_0, 'R', NULL, NULL), (:f1_1, :f2_1, 'R', NULL, NULL);
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page`
    WHERE `id` >= LAST_INSERT_ID() AND `id` < LAST_INSERT_ID() + 2 * @@auto_increment_increment
    ORDER BY `id`;

-- X put W with delay: 1
/*;*/
    INSERT INTO `page` (`url`, `title`, `status`, `runat`, `xq_owner`)
    VALUES (:f1_0, :f2_0, 'W', COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page`
    WHERE `id` = LAST_INSERT_ID();

-- X put W with delay: 2
/*;*/
    INSERT INTO `page` (`url`, `title`, `status`, `runat`, `xq_owner`)
    VALUES (:f1_0, :f2_0, 'W', COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL), (:f1_1, :f2_1, 'W', COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page`
    WHERE `id` >= LAST_INSERT_ID() AND `id` < LAST_INSERT_ID() + 2 * @@auto_increment_increment
    ORDER BY `id`;

-- R take T: first
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'T', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 60.0, `xq_owner` = :owner
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `page`.`id` INTO @xq_k0 FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T: oldest
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'T', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 60.0, `xq_owner` = :owner
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: first
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'T', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `xq_owner` = :owner
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `page`.`id` INTO @xq_k0 FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: oldest
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'T', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `xq_owner` = :owner
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T ack D: key, of this session
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack D: keys, of this session
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack D: key, of this very take
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack D: keys, of this very take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack D: keys, each of its take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`xq_owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack D with update={'url': ...}
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `url` = :f1, `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: key, of this session
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: keys, of this session
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: key, of this very take
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: keys, of this very take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: keys, each of its take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`xq_owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: owned
SELECT `page`.`id` FROM `page`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` >= :first0 AND `xq_owner` < :end0 LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` >= :first0 AND `xq_owner` < :end0 LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` >= :first0 AND `xq_owner` < :end0 LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T release R: all
UPDATE `page`
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T');

-- T release R: each
SELECT `page`.`id` FROM `page`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T snatch R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T touch T with increment: key, of this session
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T touch T with increment: key, of this very take
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W restart R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- D restart R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'D' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B switch R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B switch W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'W', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B D switch B: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B D switch D: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'D' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- D switch R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'D' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- D switch W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'D' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R kill X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- R kill X: keys
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T kill X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T kill X: keys
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- W kill X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- W kill X: keys
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- B kill X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- B kill X: keys
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- D kill X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'D' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'D' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- D kill X: keys
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'D' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'D' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- R cancel X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T cancel X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- W cancel X: key
/*;*/
    SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `page`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T bury B: key, of this session
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T bury B: keys, of this session
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T bury B: key, of this very take
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T bury B: keys, of this very take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T bury B: keys, each of its take
SELECT `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`xq_owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- B dig R: first
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `page`.`id` INTO @xq_k0 FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R: oldest
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R T W cancel B: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W delay R: due by runat
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'R', `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T ttr R: due by runat
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`xq_owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = NULL, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`xq_owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`xq_owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T release W with delay: key, of this session
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`xq_owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release W with delay: key, of this very take
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `xq_owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T snatch W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W restart W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'W', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- D restart W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'D' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'D') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- B dig W with delay: first
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'W', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `page`.`id` INTO @xq_k0 FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay: oldest
SELECT `page`.`id` FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'W', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE :chosen;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `page`.`id` FROM (SELECT `page`.`id` AS xq_c0 FROM `page` FORCE INDEX (`page_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `page` FORCE INDEX (PRIMARY) ON `page`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay: key
SELECT `page`.`id` INTO @xq_k0 FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `page` FORCE INDEX (PRIMARY)
    SET `status` = 'W', `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `xq_owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- kill in RTWBD: all
DELETE `page` FROM `page` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')) AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL;

-- kill in RTWBD: each
SELECT `page`.`id`, `page`.`url`, `page`.`title`, `page`.`status`, `page`.`runat`, `page`.`xq_owner`, `page`.`id` FROM `page` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')) FOR UPDATE;  -- lock the tasks
DELETE FROM `page`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- count what is there
INSERT INTO `page_xq_count` (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM `page`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D'))
    GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM `page_xq_count`);

-- installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'page';

-- statuses in use
SELECT CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin, COUNT(*) FROM `page`
    GROUP BY 1;

-- queues
SELECT name FROM xq_queue;

-- sessions
SELECT uuid, since, host, pid, program FROM xq_session
    WHERE queue = ''
    ORDER BY since, uuid;

-- session listed
INSERT INTO xq_session (uuid, queue, since, ends, host, pid, program)
    VALUES (:uuid, '', COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program), (:uuid, :queue, COALESCE(:now, (@@timestamp * 1e0)), COALESCE(:now, (@@timestamp * 1e0)) + :lease, :host, :pid, :program) ON DUPLICATE KEY UPDATE uuid = uuid;

-- session is there
SELECT 1 FROM xq_session
    WHERE uuid = :uuid AND queue = '' AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- sessions listed
SELECT uuid, queue, ends - COALESCE(:now, (@@timestamp * 1e0)), host, pid, program FROM xq_session;

-- rejoin session
UPDATE xq_session
    SET ends = COALESCE(:now, (@@timestamp * 1e0)) + :lease, host = :host, pid = :pid, program = :program
    WHERE uuid = :uuid AND (ends IS NULL OR ends > COALESCE(:now, (@@timestamp * 1e0)));

-- expire session later
UPDATE xq_session
    SET ends = COALESCE(ends, COALESCE(:now, (@@timestamp * 1e0)) + (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0))
    WHERE uuid IN (:uuids) AND (SELECT value FROM xq_setting
    WHERE name = 'session_ttr' AND value > 0) IS NOT NULL;

-- session ends
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends IS NOT NULL;

-- session over
SELECT uuid FROM xq_session
    WHERE uuid IN (:uuids) AND ends <= COALESCE(:now, (@@timestamp * 1e0)) FOR UPDATE;

-- deregister session
DELETE FROM xq_session
    WHERE uuid IN (:uuids) AND queue = :queue;

-- set setting
INSERT INTO xq_setting (name, value)
    VALUES (:name, :value) ON DUPLICATE KEY UPDATE value = :value;

-- time us
SELECT CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED);

-- forget cancelled
DELETE FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:' AND value < COALESCE(:now, (@@timestamp * 1e0));

-- pause
INSERT INTO xq_pause (queue, tube, whole, since_us, actor, reason)
    VALUES ('page', :tube, :whole, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED), :actor, :reason) ON DUPLICATE KEY UPDATE queue = queue;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'page' AND tube = :tube AND whole = :whole;

-- pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause
    WHERE queue = 'page';

-- add schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('page', :name, :spec, :task, :next_us) ON DUPLICATE KEY UPDATE queue = queue;

-- schedule
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'page' AND name = :name FOR UPDATE;

-- set schedule
UPDATE xq_schedule
    SET spec = :spec, task = :task, next_us = :next_us
    WHERE queue = 'page' AND name = :name;

-- drop schedule
DELETE FROM xq_schedule
    WHERE queue = 'page' AND name = :name;

-- schedules
SELECT name, spec, task, next_us, last_us, paused, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED), paused_us, actor, reason FROM xq_schedule
    WHERE queue = 'page' AND next_us IS NOT NULL
    ORDER BY name;

-- next firings
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL;

-- due schedule
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE queue = 'page' AND name = :name AND paused IS NULL AND next_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FOR UPDATE SKIP LOCKED;

-- begin wait
INSERT INTO `page_xq_wait` (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (@@timestamp * 1e0)));

-- ends
SELECT waiter, event, target FROM `page_xq_wait`
    WHERE event IS NOT NULL;

-- end wait
DELETE FROM `page_xq_wait`
    WHERE k0 = :k0 AND waiter = :waiter AND ((@xq_event := event) IS NULL OR TRUE) AND ((@xq_target := target) IS NULL OR TRUE); /*;*/
    SELECT @xq_event, @xq_target FROM DUAL
    WHERE ROW_COUNT() > 0;

-- forget waits
DELETE FROM `page_xq_wait`
    WHERE session IN (:uuids);

-- waiting
SELECT k0, session, since FROM `page_xq_wait`
    WHERE event IS NULL
    ORDER BY since;

-- any ready
SELECT 1 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT 1;

-- next due
SELECT 'T runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'W runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'untimed' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT 0 AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`xq_owner` IS NULL OR substr(`xq_owner`, 1, 1) = '-') AND `runat` IS NULL LIMIT 1) AS times;

-- taken
SELECT `id`, `xq_owner` FROM `page`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T');

-- counters
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `page_xq_count`
    GROUP BY tube, source, target;

-- actual counts
SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM `page`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D'))
    GROUP BY 1, 2;

-- audit
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `page_xq_count`
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'D' THEN 'D' ELSE 'X' END AS state, COUNT(*) AS n FROM `page`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D'))
    GROUP BY 1, 2) AS actual;

-- add counter
INSERT INTO `page_xq_count` (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- look
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner`, `xq_owner` FROM `page`
    WHERE `id` = :k0;

-- look at all
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner`, `xq_owner` FROM `page` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed);

-- maintenance, for this queue and others: is there something for who waits
CALL xq_watch(_utf8mb4 X'455849535453202853454c45435420312046524f4d2060706167656020464f52434520494e444558202860706167655f78715f6f6c646573745f52602920574845524520286073746174757360203d2027522720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d2027522729204c494d4954203129204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d2060706167656020464f52434520494e444558202860706167655f78715f72756e6174602920574845524520286073746174757360203d2027542720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202754272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d2060706167656020464f52434520494e444558202860706167655f78715f72756e6174602920574845524520286073746174757360203d2027572720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202757272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529');

-- maintenance, for this queue and others: what other processes may have changed
SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n FROM xq_queue
    WHERE name IN ('page')
    UNION ALL
    SELECT 'pause', queue, tube, '', whole FROM xq_pause
    UNION ALL
    SELECT 'schedule', queue, name, '', next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL
    UNION ALL
    SELECT 'cancelled', '', name, '', 0 FROM xq_setting
    WHERE substr(name, 1, 10) = 'cancelled:'
    UNION ALL
    SELECT 'read only', '', '', '', 1 FROM DUAL
    WHERE CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF');

-- maintenance, for this queue and others: when is a task due, and is one ready
SELECT 0 AS place, 'T runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'W runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'untimed' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT 0 AS at FROM `page` FORCE INDEX (`page_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`xq_owner` IS NULL OR substr(`xq_owner`, 1, 1) = '-') AND `runat` IS NULL LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'ready' AS duty, 0.0 AS seconds FROM (SELECT 1 FROM `page` FORCE INDEX (`page_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') LIMIT 1) AS ready;

-- maintenance, for this queue and others: who owns tasks and is not registered
SELECT DISTINCT place, uuid FROM (SELECT 0 AS place, substr(`xq_owner`, 1, 36) AS uuid FROM `page`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T')
    UNION ALL
    SELECT 0 AS place, session AS uuid FROM `page_xq_wait`) AS found
    WHERE uuid NOT IN (SELECT uuid FROM xq_session);

-- maintenance, for this queue and others: which have many counters
SELECT 0 FROM (SELECT 1 AS one FROM `page_xq_count` LIMIT 1 OFFSET 100) AS counters;

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
SELECT COUNT(*) FROM `page` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'D') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'D')) FOR UPDATE;

-- R T W B D by_state
SELECT `id`, `url`, `title`, `status`, `runat`, `xq_owner` FROM `page`
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `id` LIMIT :n;
