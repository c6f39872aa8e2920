"""How far one table goes: measured costs of a deleted session, carried on to rates that no test machine sees."""
