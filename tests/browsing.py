"""Playwright's `expect` for the browser tests, imported when it is first called: collecting the tests stays fast."""

PATIENCE = 60_000  # milliseconds; five seconds, Playwright's own, are too few beside busy workers


def expect(*arguments, **options):
    from playwright.sync_api import expect as of_playwright

    of_playwright.set_options(timeout=PATIENCE)
    return of_playwright(*arguments, **options)
