pytest_plugins = ["pytester", "tests.loopback.fixtures"]
