"""The web application that ``toolemu ui`` serves: sessions, their results, and their runs in a browser.

Only this package imports Starlette and Uvicorn, and only its modules do so at import: ``cli`` and ``plugin`` import
them inside functions.
"""
