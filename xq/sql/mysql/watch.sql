What looks on the server until callers may be served.

--: watch
-- Return a row once the condition `found` is true, and none after 5 seconds. The pauses grow from 1 to 20 ms.
CREATE PROCEDURE IF NOT EXISTS xq_watch(found LONGTEXT) SQL SECURITY INVOKER BEGIN
    DECLARE pause DOUBLE DEFAULT 0.001;
    DECLARE ends DOUBLE DEFAULT UNIX_TIMESTAMP(SYSDATE(6)) + 5;
    SET @xq_watch = CONCAT('SELECT ', found, ' INTO @xq_found');
    PREPARE xq_watch FROM @xq_watch;
    REPEAT
        DO SLEEP(pause);
        SET pause = LEAST(pause * 1.04, 0.02);
        EXECUTE xq_watch;
    UNTIL @xq_found OR UNIX_TIMESTAMP(SYSDATE(6)) > ends END REPEAT;
    DEALLOCATE PREPARE xq_watch;
    SELECT 1 FROM DUAL WHERE @xq_found;
END
