"""How far a judge can be trusted: held against labelled references, and against what people say of stored runs."""
