"""Models of providers: their SDKs, and everything between a request and its reply."""
