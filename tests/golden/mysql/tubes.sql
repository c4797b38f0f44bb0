-- Every role of a queue with tubes that are counted: owner, attempts, priority, own ttl and ttr; history.
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

-- install: the table mail_xq_count
CREATE TABLE IF NOT EXISTS `mail_xq_count` (id BIGINT AUTO_INCREMENT PRIMARY KEY, tube VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, source VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, target VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL, n BIGINT NOT NULL) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the table mail_xq_wait
CREATE TABLE IF NOT EXISTS `mail_xq_wait` (waiter VARCHAR(64) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT '', session VARCHAR(36) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT '', since DOUBLE, event VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, target VARCHAR(1) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, PRIMARY KEY (k0, waiter)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC AS
    SELECT `id` AS k0 FROM `mail` LIMIT 0;

-- install: the table mail_xq_history
CREATE TABLE IF NOT EXISTS `mail_xq_history` (`id` BIGINT AUTO_INCREMENT PRIMARY KEY, `at_us` BIGINT, `key` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `tube` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `source` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `target` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `event` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `owner` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `attempt` BIGINT, `actor` VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin, `reason` VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- install: the index mail_xq_oldest_R
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'mail' AND index_name = _utf8mb4 'mail_xq_oldest_R'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `mail_xq_oldest_R` ON `mail` (`status`, `priority`, `id`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the index mail_xq_oldest_R_of_tube
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'mail' AND index_name = _utf8mb4 'mail_xq_oldest_R_of_tube'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `mail_xq_oldest_R_of_tube` ON `mail` (`status`, `tube`(191), `priority`, `id`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the index mail_xq_oldest_B
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'mail' AND index_name = _utf8mb4 'mail_xq_oldest_B'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `mail_xq_oldest_B` ON `mail` (`status`, `priority`, `id`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the index mail_xq_runat
/*;*/
    SET @xq_sql = IF(EXISTS(SELECT 1 FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = _utf8mb4 'mail' AND index_name = _utf8mb4 'mail_xq_runat'), _utf8mb4 'DO 0', _utf8mb4 'CREATE INDEX `mail_xq_runat` ON `mail` (`status`, `runat`)');
PREPARE xq_sql FROM @xq_sql;
EXECUTE xq_sql;
DEALLOCATE PREPARE xq_sql;

-- install: the trigger mail_xq_insert
LOCK TABLES `mail` WRITE;

-- install: the trigger mail_xq_insert
DROP TRIGGER IF EXISTS `mail_xq_insert`;

-- install: the trigger mail_xq_insert
CREATE TRIGGER `mail_xq_insert` AFTER INSERT ON `mail` FOR EACH ROW BEGIN DECLARE new_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END;
DECLARE event_name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
DECLARE by_actor VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1), ''), NULL);
DECLARE by_reason VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1), ''), NULL);
IF ('X' <> new_state) THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', 'X', new_state, 1);
END IF;
IF ((NEW.`tube` IN ('it''s', 'news') AND CONVERT(NEW.`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news')) AND new_state <> 'X') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (NEW.`tube`, 'X', new_state, 1);
END IF;
IF (new_state <> 'X') THEN
    INSERT INTO `mail_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`, `actor`, `reason`)
    VALUES (CONVERT(NEW.`id` USING utf8mb4) COLLATE utf8mb4_0900_bin, NEW.`tube`, NEW.`attempts`, at_us, 'X', new_state, event_name, CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN NEW.`owner` END, by_actor, by_reason);
END IF;
END;

-- install: the trigger mail_xq_insert
UNLOCK TABLES;

-- install: the trigger mail_xq_update
LOCK TABLES `mail` WRITE;

-- install: the trigger mail_xq_update
DROP TRIGGER IF EXISTS `mail_xq_update`;

-- install: the trigger mail_xq_update
CREATE TRIGGER `mail_xq_update` AFTER UPDATE ON `mail` FOR EACH ROW BEGIN DECLARE old_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END;
DECLARE new_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END;
DECLARE other_key BOOLEAN DEFAULT (NOT (CAST(OLD.`id` AS BINARY) <=> CAST(NEW.`id` AS BINARY)));
DECLARE event_name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
DECLARE by_actor VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1), ''), NULL);
DECLARE by_reason VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1), ''), NULL);
IF (((OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') OR ((OLD.`status` IN ('T', 'Z') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('T', 'Z')) AND (NEW.`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')))) AND NOT (CAST(OLD.`status` AS BINARY) <=> CAST(NEW.`status` AS BINARY)) AND ((OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND NEW.`owner` = CONCAT('-', OLD.`owner`)) IS NOT TRUE AND event_name = 'write') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (CONCAT(old_state, '-', new_state, ' write'), 'S', 'S', 1);
END IF;
IF (old_state <> new_state) THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', old_state, new_state, 1);
END IF;
IF (NOT NOT (CAST(OLD.`tube` AS BINARY) <=> CAST(NEW.`tube` AS BINARY)) AND (NEW.`tube` IN ('it''s', 'news') AND CONVERT(NEW.`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news')) AND old_state <> new_state) THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (NEW.`tube`, old_state, new_state, 1);
END IF;
IF (NOT (CAST(OLD.`tube` AS BINARY) <=> CAST(NEW.`tube` AS BINARY)) AND (OLD.`tube` IN ('it''s', 'news') AND CONVERT(OLD.`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news')) AND old_state <> 'X') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (OLD.`tube`, old_state, CASE WHEN new_state <> 'X' THEN 'S' ELSE 'X' END, 1);
END IF;
IF (NOT (CAST(OLD.`tube` AS BINARY) <=> CAST(NEW.`tube` AS BINARY)) AND (NEW.`tube` IN ('it''s', 'news') AND CONVERT(NEW.`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news')) AND new_state <> 'X') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (NEW.`tube`, CASE WHEN old_state <> 'X' THEN 'S' ELSE 'X' END, new_state, 1);
END IF;
IF (((new_state IN ('R', 'T', 'W')) IS NOT TRUE OR other_key) AND old_state IN ('R', 'T', 'W') AND EXISTS (SELECT 1 FROM `mail_xq_wait`)) THEN UPDATE `mail_xq_wait`
    SET `event` = event_name, `target` = CASE WHEN other_key THEN 'X' ELSE new_state END
    WHERE k0 = OLD.`id` AND event IS NULL;
END IF;
IF (other_key AND old_state <> 'X') THEN
    INSERT INTO `mail_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`, `actor`, `reason`)
    VALUES (CONVERT(OLD.`id` USING utf8mb4) COLLATE utf8mb4_0900_bin, OLD.`tube`, OLD.`attempts`, at_us, old_state, 'X', event_name, CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN OLD.`owner` END, by_actor, by_reason);
END IF;
IF (other_key AND new_state <> 'X') THEN
    INSERT INTO `mail_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`, `actor`, `reason`)
    VALUES (CONVERT(NEW.`id` USING utf8mb4) COLLATE utf8mb4_0900_bin, NEW.`tube`, NEW.`attempts`, at_us, 'X', new_state, event_name, CASE WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN NEW.`owner` END, by_actor, by_reason);
END IF;
IF (NOT other_key AND (old_state <> 'X' OR new_state <> 'X') AND (NOT (CAST(OLD.`status` AS BINARY) <=> CAST(NEW.`status` AS BINARY)) OR event_name <> 'write')) THEN
    INSERT INTO `mail_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`, `actor`, `reason`)
    VALUES (CONVERT(NEW.`id` USING utf8mb4) COLLATE utf8mb4_0900_bin, NEW.`tube`, NEW.`attempts`, at_us, old_state, new_state, event_name, CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN OLD.`owner` WHEN (NEW.`status` = 'T' AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN NEW.`owner` END, by_actor, by_reason);
END IF;
END;

-- install: the trigger mail_xq_update
UNLOCK TABLES;

-- install: the trigger mail_xq_delete
LOCK TABLES `mail` WRITE;

-- install: the trigger mail_xq_delete
DROP TRIGGER IF EXISTS `mail_xq_delete`;

-- install: the trigger mail_xq_delete
CREATE TRIGGER `mail_xq_delete` AFTER DELETE ON `mail` FOR EACH ROW BEGIN DECLARE old_state CHAR(1) CHARACTER
    SET ascii DEFAULT CASE CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END;
DECLARE event_name VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR), SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 1), '', -1), 'write');
DECLARE at_us BIGINT DEFAULT ROUND(IF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 2), '', -1) = 'mail' AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 6), '', -1) = CAST((@@timestamp * 1e0) AS CHAR) AND SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) <> '', SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 5), '', -1) * 1e0, (@@timestamp * 1e0)) * 1000000);
DECLARE by_actor VARCHAR(255) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 3), '', -1), ''), NULL);
DECLARE by_reason VARCHAR(1000) CHARACTER
    SET utf8mb4 COLLATE utf8mb4_0900_bin DEFAULT IF(event_name <> 'write', NULLIF(SUBSTRING_INDEX(SUBSTRING_INDEX(CAST(@xq_context AS CHAR CHARACTER
    SET utf8mb4) COLLATE utf8mb4_bin, '', 4), '', -1), ''), NULL);
IF (old_state <> 'X') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES ('', old_state, 'X', 1);
END IF;
IF ((OLD.`tube` IN ('it''s', 'news') AND CONVERT(OLD.`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news')) AND old_state <> 'X') THEN
    INSERT INTO `mail_xq_count` (`tube`, `source`, `target`, `n`)
    VALUES (OLD.`tube`, old_state, 'X', 1);
END IF;
IF (old_state IN ('R', 'T', 'W') AND EXISTS (SELECT 1 FROM `mail_xq_wait`)) THEN UPDATE `mail_xq_wait`
    SET `event` = event_name, `target` = 'X'
    WHERE k0 = OLD.`id` AND event IS NULL;
END IF;
IF (old_state <> 'X') THEN
    INSERT INTO `mail_xq_history` (`key`, `tube`, `attempt`, `at_us`, `source`, `target`, `event`, `owner`, `actor`, `reason`)
    VALUES (CONVERT(OLD.`id` USING utf8mb4) COLLATE utf8mb4_0900_bin, OLD.`tube`, OLD.`attempts`, at_us, old_state, 'X', event_name, CASE WHEN (OLD.`status` = 'T' AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') THEN OLD.`owner` END, by_actor, by_reason);
END IF;
END;

-- install: the trigger mail_xq_delete
UNLOCK TABLES;

-- install: the trigger mail_xq_left
LOCK TABLES `mail` WRITE;

-- install: the trigger mail_xq_left
DROP TRIGGER IF EXISTS `mail_xq_left`;

-- install: the trigger mail_xq_left
CREATE TRIGGER `mail_xq_left` BEFORE UPDATE ON `mail` FOR EACH ROW BEGIN IF NOT COALESCE((NEW.`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(NEW.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')), FALSE) AND COALESCE((OLD.`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(OLD.`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')), FALSE) AND (NOT (CAST(NEW.`runat` AS BINARY) <=> CAST(NULL AS BINARY))) AND (NEW.`owner` IN ('-', '--') AND NOT (CAST(OLD.`owner` AS BINARY) <=> CAST(NEW.`owner` AS BINARY))) IS NOT TRUE THEN
    SET NEW.`runat` = NULL;
END IF;
END;

-- install: the trigger mail_xq_left
UNLOCK TABLES;

-- install: record
INSERT INTO xq_generation (queue, kind, generation, version, definition, at_us)
    SELECT name, 'definition', (SELECT COALESCE(MAX(generation), 0) + 1 FROM xq_generation
    WHERE queue = 'mail' AND kind = 'definition'), version, fingerprint, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_queue
    WHERE name = 'mail' AND (version, fingerprint) NOT IN (SELECT version, CONVERT(definition USING utf8mb4) COLLATE utf8mb4_0900_bin FROM xq_generation
    WHERE queue = 'mail' AND kind = 'definition');

-- install: record
UPDATE xq_generation
    SET at_us = CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED)
    WHERE queue = 'mail' AND kind = 'definition' AND (version, CONVERT(definition USING utf8mb4) COLLATE utf8mb4_0900_bin) = (SELECT version, fingerprint FROM xq_queue
    WHERE name = 'mail');

-- install: record
DELETE FROM xq_queue
    WHERE name = 'mail';

-- install: record
INSERT INTO xq_queue (name, version, fingerprint)
    VALUES ('mail', 'VERSION', _utf8mb4 'FINGERPRINT');

-- X put R: 1
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `ttl`, `ttr`, `status`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, COALESCE(:now, (@@timestamp * 1e0)) + 10.0, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED));

-- X put R: 2
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `ttl`, `ttr`, `status`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, COALESCE(:now, (@@timestamp * 1e0)) + 10.0, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, :f8_1, :f9_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, COALESCE(:now, (@@timestamp * 1e0)) + 10.0, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` IN (IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)), IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)))
    ORDER BY CASE WHEN `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)) THEN 0 WHEN `id` = IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)) THEN 1 END;

-- X put R with ttl, ttr: 1
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `status`, `ttl`, `ttr`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :ttl, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED));

-- X put R with ttl, ttr: 2
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `status`, `ttl`, `ttr`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :ttl, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :ttl, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` IN (IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)), IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)))
    ORDER BY CASE WHEN `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)) THEN 0 WHEN `id` = IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)) THEN 1 END;

-- X put W with delay: 1
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `ttl`, `ttr`, `status`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED));

-- X put W with delay: 2
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `ttl`, `ttr`, `status`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, :f8_0, :f9_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, :f8_1, :f9_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` IN (IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)), IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)))
    ORDER BY CASE WHEN `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)) THEN 0 WHEN `id` = IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)) THEN 1 END;

-- X put W with delay, ttl, ttr: 1
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `status`, `ttl`, `ttr`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED));

-- X put W with delay, ttl, ttr: 2
/*;*/
    INSERT INTO `mail` (`id`, `address`, `priority`, `tube`, `attempts`, `status`, `ttl`, `ttr`, `runat`, `owner`)
    VALUES (:f0_0, :f1_0, :f4_0, :f5_0, :f7_0, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL), (:f0_1, :f1_1, :f4_1, :f5_1, :f7_1, CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, :own_ttl, :own_ttr, COALESCE(:now, (@@timestamp * 1e0)) + :delay, NULL);
    SELECT COUNT(*) FROM `mail`
    WHERE `id` = 0 INTO @xq_zero;
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE `id` IN (IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)), IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)))
    ORDER BY CASE WHEN `id` = IF(:f0_0 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_0 AS SIGNED)) THEN 0 WHEN `id` = IF(:f0_1 + 0 = 0 AND NOT @xq_zero, LAST_INSERT_ID(), CAST(:f0_1 AS SIGNED)) THEN 1 END;

-- R take T: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttr`, 60.0), 1267650600228229401496703205376e0), `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttr`, 60.0), 1267650600228229401496703205376e0), `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T: first of a tube
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttr`, 60.0), 1267650600228229401496703205376e0), `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T: oldest of a tube
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttr`, 60.0), 1267650600228229401496703205376e0), `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T: first, while 2 tubes are paused
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttr`, 60.0), 1267650600228229401496703205376e0), `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: first of a tube
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: oldest of a tube
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R_of_tube`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` = :tube AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin = :tube) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R take T with ttr: first, while 2 tubes are paused
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'T' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttr, `owner` = :owner, `attempts` = COALESCE(`attempts`, 0) + 1
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`tube` IS NULL OR CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin NOT IN (:skip0, :skip1)) AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T ack Z: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack Z: keys, of this session
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack Z: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack Z: keys, of this very take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack Z: keys, each of its take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T ack Z with delay: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack Z with delay: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T ack Z with update={'address': ...}
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `address` = :f1, `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: keys, of this session
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R: keys, of this very take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: keys, each of its take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R: owned
SELECT `mail`.`id` FROM `mail`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` >= :first0 AND `owner` < :end0 LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` >= :first0 AND `owner` < :end0 LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` >= :first0 AND `owner` < :end0 LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T release R: all
UPDATE `mail`
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T');

-- T release R: each
SELECT `mail`.`id` FROM `mail`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T release R with ttl, ttr: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release R with ttl, ttr: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T snatch R: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T snatch R with ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T touch T with increment: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T touch T with increment: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W Z restart R: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W Z restart R with ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch R: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch R with ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch W with delay: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch W with delay, ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch B: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch Z: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + 3600.0, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R W B Z switch Z with delay: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'Z' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R kill X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- R kill X: keys
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- T kill X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T kill X: keys
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- W kill X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- W kill X: keys
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- B kill X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- B kill X: keys
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'B' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- Z kill X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'Z' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- Z kill X: keys
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'Z' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'Z' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- R cancel X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'R' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T cancel X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- W cancel X: key
/*;*/
    SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;
DELETE FROM `mail`
    WHERE `id` = :k0 AND (CONCAT(`status`) = 'W' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT 1;

-- T bury B: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T bury B: keys, of this session
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T bury B: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T bury B: keys, of this very take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- T bury B: keys, each of its take
SELECT `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed) AND (CONCAT(`status`) = 'T' AND CONVERT(CONCAT(`status`) USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`id`, CONCAT(`owner`)) IN (:takes) FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back

-- B dig R: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- B dig R with ttl, ttr: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R with ttl, ttr: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig R with ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :ttl, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R T W cancel B: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'B' END, `runat` = NULL, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W delay R: due by runat
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- Z zombie X: due by runat
SELECT `mail`.`id`, `mail`.`address`, `mail`.`status`, `mail`.`runat`, `mail`.`priority`, `mail`.`tube`, `mail`.`owner`, `mail`.`attempts`, `mail`.`ttl`, `mail`.`ttr`, `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
DELETE FROM `mail`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;
SELECT `mail`.`id`, `mail`.`address`, `mail`.`status`, `mail`.`runat`, `mail`.`priority`, `mail`.`tube`, `mail`.`owner`, `mail`.`attempts`, `mail`.`ttl`, `mail`.`ttr`, `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- R touch R with increment: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `runat` = COALESCE(`runat`, COALESCE(:now, (@@timestamp * 1e0))) + :increment
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- R ttl X: due by runat
SELECT `mail`.`id`, `mail`.`address`, `mail`.`status`, `mail`.`runat`, `mail`.`priority`, `mail`.`tube`, `mail`.`owner`, `mail`.`attempts`, `mail`.`ttl`, `mail`.`ttr`, `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
DELETE FROM `mail`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;
SELECT `mail`.`id`, `mail`.`address`, `mail`.`status`, `mail`.`runat`, `mail`.`priority`, `mail`.`tube`, `mail`.`owner`, `mail`.`attempts`, `mail`.`ttl`, `mail`.`ttr`, `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T ttr R: due by runat
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `runat` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'R' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + NULLIF(COALESCE(`ttl`, 10.0), 1267650600228229401496703205376e0), `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0)))
    ORDER BY `runat` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` <= COALESCE(:now, (@@timestamp * 1e0)) AND COALESCE(CONVERT(`owner` USING utf8mb4) COLLATE utf8mb4_0900_bin, '') NOT IN (SELECT token FROM xq_lease
    WHERE ends > COALESCE(:now, (@@timestamp * 1e0))) LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- T release W with delay: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release W with delay: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release W with delay, ttl, ttr: key, of this session
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND substr(`owner`, 1, 37) = :session FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T release W with delay, ttl, ttr: key, of this very take
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `owner` = :token FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T snatch W with delay: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- T snatch W with delay, ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W Z restart W with delay: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- W Z restart W with delay, ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- B dig W with delay: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- B dig W with delay, ttl, ttr: first
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back
SELECT `mail`.`id` INTO @xq_k0 FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT 1 FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay, ttl, ttr: oldest
SELECT `mail`.`id` FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE :chosen;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE :chosen FOR UPDATE;  -- read them back
SELECT `mail`.`id` FROM (SELECT `mail`.`id` AS xq_c0 FROM `mail` FORCE INDEX (`mail_xq_oldest_B`)
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B')
    ORDER BY `priority`, `id` LIMIT :most) AS xq_c STRAIGHT_JOIN `mail` FORCE INDEX (PRIMARY) ON `mail`.`id` = xq_c0
    WHERE (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') LIMIT :n FOR UPDATE SKIP LOCKED;  -- lock the tasks, in a transaction of the application

-- B dig W with delay, ttl, ttr: key
SELECT `mail`.`id` INTO @xq_k0 FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = :k0 AND (`status` = 'B' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'B') FOR UPDATE;  -- lock the tasks
UPDATE `mail` FORCE INDEX (PRIMARY)
    SET `status` = CASE WHEN (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL THEN 'W' END, `ttl` = :own_ttl, `ttr` = :own_ttr, `runat` = COALESCE(:now, (@@timestamp * 1e0)) + :delay, `owner` = NULL
    WHERE `id` = @xq_k0;
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` = @xq_k0 FOR UPDATE;  -- read them back

-- kill in RTWBZ: all
DELETE `mail` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL;

-- kill in RTWBZ: each
SELECT `mail`.`id`, `mail`.`address`, `mail`.`status`, `mail`.`runat`, `mail`.`priority`, `mail`.`tube`, `mail`.`owner`, `mail`.`attempts`, `mail`.`ttl`, `mail`.`ttr`, `mail`.`id` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) FOR UPDATE;  -- lock the tasks
DELETE FROM `mail`
    WHERE :chosen AND (@xq_context := CONCAT(:context, (@@timestamp * 1e0))) IS NOT NULL
    ORDER BY `id` LIMIT :many;

-- count what is there
INSERT INTO `mail_xq_count` (tube, source, target, n)
    SELECT tube, '', state, n FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z'))
    GROUP BY 1, 2
    UNION ALL
    SELECT CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) AND (`tube` IN ('it''s', 'news') AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news'))
    GROUP BY 1, 2) AS actual
    WHERE NOT EXISTS (SELECT 1 FROM `mail_xq_count`);

-- installed
SELECT version, fingerprint FROM xq_queue
    WHERE name = 'mail';

-- statuses in use
SELECT CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin, COUNT(*) FROM `mail`
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
    VALUES ('mail', :tube, :whole, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED), :actor, :reason) ON DUPLICATE KEY UPDATE queue = queue;

-- resume
DELETE FROM xq_pause
    WHERE queue = 'mail' AND tube = :tube AND whole = :whole;

-- pauses
SELECT tube, whole, since_us, actor, reason FROM xq_pause
    WHERE queue = 'mail';

-- add schedule
INSERT INTO xq_schedule (queue, name, spec, task, next_us)
    VALUES ('mail', :name, :spec, :task, :next_us) ON DUPLICATE KEY UPDATE queue = queue;

-- schedule
SELECT spec, task, next_us FROM xq_schedule
    WHERE queue = 'mail' AND name = :name FOR UPDATE;

-- set schedule
UPDATE xq_schedule
    SET spec = :spec, task = :task, next_us = :next_us
    WHERE queue = 'mail' AND name = :name;

-- drop schedule
DELETE FROM xq_schedule
    WHERE queue = 'mail' AND name = :name;

-- schedules
SELECT name, spec, task, next_us, last_us, paused, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED), paused_us, actor, reason FROM xq_schedule
    WHERE queue = 'mail' AND next_us IS NOT NULL
    ORDER BY name;

-- next firings
SELECT queue, name, next_us - CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE next_us IS NOT NULL AND paused IS NULL;

-- due schedule
SELECT spec, task, next_us, CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FROM xq_schedule
    WHERE queue = 'mail' AND name = :name AND paused IS NULL AND next_us <= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) FOR UPDATE SKIP LOCKED;

-- begin wait
INSERT INTO `mail_xq_wait` (k0, waiter, session, since)
    VALUES (:k0, :waiter, :uuid, COALESCE(:now, (@@timestamp * 1e0)));

-- ends
SELECT waiter, event, target FROM `mail_xq_wait`
    WHERE event IS NOT NULL;

-- end wait
DELETE FROM `mail_xq_wait`
    WHERE k0 = :k0 AND waiter = :waiter AND ((@xq_event := event) IS NULL OR TRUE) AND ((@xq_target := target) IS NULL OR TRUE); /*;*/
    SELECT @xq_event, @xq_target FROM DUAL
    WHERE ROW_COUNT() > 0;

-- forget waits
DELETE FROM `mail_xq_wait`
    WHERE session IN (:uuids);

-- waiting
SELECT k0, session, since FROM `mail_xq_wait`
    WHERE event IS NULL
    ORDER BY since;

-- any ready
SELECT 1 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(:now, (@@timestamp * 1e0))) LIMIT 1;

-- next due
SELECT 'T runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'W runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'Z runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'R runat' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 'history' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT at_us / 1000000.0 + 660.0 AS at FROM `mail_xq_history`
    WHERE id < (SELECT MAX(id) FROM `mail_xq_history`)
    ORDER BY id LIMIT 1) AS times
    UNION ALL
    SELECT 'untimed' AS duty, at - COALESCE(:now, (@@timestamp * 1e0)) AS seconds FROM (SELECT 0 AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`owner` IS NULL OR substr(`owner`, 1, 1) = '-') AND `runat` IS NULL LIMIT 1) AS times;

-- taken
SELECT `id`, `owner` FROM `mail`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T');

-- counters
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `mail_xq_count`
    GROUP BY tube, source, target;

-- actual counts
SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z'))
    GROUP BY 1, 2
    UNION ALL
    SELECT CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) AND (`tube` IN ('it''s', 'news') AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news'))
    GROUP BY 1, 2;

-- audit
SELECT tube, source, target, CAST(SUM(n) AS SIGNED) AS n, COUNT(*) FROM `mail_xq_count`
    GROUP BY tube, source, target
    UNION ALL
    SELECT tube, NULL AS source, state AS target, n, 0 FROM (SELECT '' AS tube, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END AS state, COUNT(*) AS n FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z'))
    GROUP BY 1, 2
    UNION ALL
    SELECT CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin, CASE CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin WHEN 'R' THEN 'R' WHEN 'T' THEN 'T' WHEN 'W' THEN 'W' WHEN 'B' THEN 'B' WHEN 'Z' THEN 'Z' ELSE 'X' END, COUNT(*) FROM `mail`
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) AND (`tube` IN ('it''s', 'news') AND CONVERT(`tube` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('it''s', 'news'))
    GROUP BY 1, 2) AS actual;

-- add counter
INSERT INTO `mail_xq_count` (tube, source, target, n)
    VALUES (:tube, :source, :target, :count);

-- expired history
SELECT id FROM (SELECT id, at_us FROM `mail_xq_history`
    WHERE id < (SELECT MAX(id) FROM `mail_xq_history`)
    ORDER BY id LIMIT :n) AS oldest
    WHERE at_us < CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - 600.0 * 1000000;

-- look
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr`, `owner` FROM `mail`
    WHERE `id` = :k0;

-- look at all
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr`, `owner` FROM `mail` FORCE INDEX (PRIMARY)
    WHERE `id` IN (:listed);

-- maintenance, for this queue and others: is there something for who waits
CALL xq_watch(_utf8mb4 X'455849535453202853454c45435420312046524f4d20606d61696c6020464f52434520494e4445582028606d61696c5f78715f6f6c646573745f52602920574845524520286073746174757360203d2027522720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202752272920414e4420286072756e617460204953204e554c4c204f52206072756e617460203e20434f414c45534345284e554c4c2c2028404074696d657374616d70202a20316530292929204c494d4954203129204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d20606d61696c6020464f52434520494e4445582028606d61696c5f78715f72756e6174602920574845524520286073746174757360203d2027542720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202754272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d20606d61696c6020464f52434520494e4445582028606d61696c5f78715f72756e6174602920574845524520286073746174757360203d2027572720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202757272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d20606d61696c6020464f52434520494e4445582028606d61696c5f78715f72756e6174602920574845524520286073746174757360203d20275a2720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d20275a272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529204f5220434f414c45534345282853454c454354206072756e6174602041532061742046524f4d20606d61696c6020464f52434520494e4445582028606d61696c5f78715f72756e6174602920574845524520286073746174757360203d2027522720414e4420434f4e56455254286073746174757360205553494e4720757466386d62342920434f4c4c41544520757466386d62345f303930305f62696e203d202752272920414e44206072756e617460204953204e4f54204e554c4c204f52444552204259206072756e617460204c494d4954203129203c3d20434f414c45534345284e554c4c2c2028404074696d657374616d70202a2031653029292c2046414c534529');

-- maintenance, for this queue and others: what other processes may have changed
SELECT 'queue' AS kind, name AS queue, version AS name, fingerprint AS text, 0 AS n FROM xq_queue
    WHERE name IN ('mail')
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
SELECT 0 AS place, 'T runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'W runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'W' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'W') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'Z runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'Z' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'Z') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'R runat' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT `runat` AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND `runat` IS NOT NULL
    ORDER BY `runat` LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'history' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT at_us / 1000000.0 + 660.0 AS at FROM `mail_xq_history`
    WHERE id < (SELECT MAX(id) FROM `mail_xq_history`)
    ORDER BY id LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'untimed' AS duty, at - COALESCE(NULL, (@@timestamp * 1e0)) AS seconds FROM (SELECT 0 AS at FROM `mail` FORCE INDEX (`mail_xq_runat`)
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T') AND (`owner` IS NULL OR substr(`owner`, 1, 1) = '-') AND `runat` IS NULL LIMIT 1) AS times
    UNION ALL
    SELECT 0 AS place, 'ready' AS duty, 0.0 AS seconds FROM (SELECT 1 FROM `mail` FORCE INDEX (`mail_xq_oldest_R`)
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R') AND (`runat` IS NULL OR `runat` > COALESCE(NULL, (@@timestamp * 1e0))) LIMIT 1) AS ready;

-- maintenance, for this queue and others: who owns tasks and is not registered
SELECT DISTINCT place, uuid FROM (SELECT 0 AS place, substr(`owner`, 1, 36) AS uuid FROM `mail`
    WHERE (`status` = 'T' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'T')
    UNION ALL
    SELECT 0 AS place, session AS uuid FROM `mail_xq_wait`) AS found
    WHERE uuid NOT IN (SELECT uuid FROM xq_session);

-- maintenance, for this queue and others: which have many counters
SELECT 0 FROM (SELECT 1 AS one FROM `mail_xq_count` LIMIT 1 OFFSET 100) AS counters;

-- forget the queue in xq_pause
DELETE FROM xq_pause
    WHERE queue = 'mail';

-- forget the queue in xq_schedule
DELETE FROM xq_schedule
    WHERE queue = 'mail';

-- forget the queue in xq_rate
DELETE FROM xq_rate
    WHERE queue = 'mail';

-- forget the queue in xq_generation
DELETE FROM xq_generation
    WHERE queue = 'mail';

-- forget the queue in xq_object
DELETE FROM xq_object
    WHERE queue = 'mail';

-- forget the queue in xq_queue
DELETE FROM xq_queue
    WHERE name = 'mail';

-- lock before a kill in several states
SELECT COUNT(*) FROM `mail` FORCE INDEX (PRIMARY)
    WHERE (`status` IN ('R', 'T', 'W', 'B', 'Z') AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin IN ('R', 'T', 'W', 'B', 'Z')) FOR UPDATE;

-- history
SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, dur_us FROM (SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, CASE WHEN source <> 'X' THEN at_us - LAG(at_us) OVER (PARTITION BY `key`
    ORDER BY id) END AS dur_us FROM `mail_xq_history`) AS noted
    WHERE at_us >= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - 600.0 * 1000000
    ORDER BY id;

-- history of a task, from one moment to another
SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, dur_us FROM (SELECT `id`, `at_us`, `key`, `tube`, `source`, `target`, `event`, `owner`, `attempt`, `actor`, `reason`, CASE WHEN source <> 'X' THEN at_us - LAG(at_us) OVER (PARTITION BY `key`
    ORDER BY id) END AS dur_us FROM `mail_xq_history`
    WHERE `key` = CONVERT(:k0 USING utf8mb4) COLLATE utf8mb4_0900_bin) AS noted
    WHERE at_us >= :since AND at_us < :until AND at_us >= CAST(ROUND(COALESCE(:now, (@@timestamp * 1e0)) * 1000000) AS SIGNED) - 600.0 * 1000000
    ORDER BY id;

-- R T W B Z by_state
SELECT `id`, `address`, `status`, `runat`, `priority`, `tube`, `owner`, `attempts`, `ttl`, `ttr` FROM `mail`
    WHERE (`status` = 'R' AND CONVERT(`status` USING utf8mb4) COLLATE utf8mb4_0900_bin = 'R')
    ORDER BY `priority`, `id` LIMIT :n;
