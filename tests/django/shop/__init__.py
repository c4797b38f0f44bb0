"""An app as the tests need one."""
