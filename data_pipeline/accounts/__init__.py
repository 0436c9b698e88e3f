"""Fetches the mail of IMAP accounts: signs in, reads, and keeps an inbox file in sync."""
