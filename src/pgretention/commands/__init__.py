"""The commands, one module each: `command` is what click calls. Imported when somebody asks for that one."""
