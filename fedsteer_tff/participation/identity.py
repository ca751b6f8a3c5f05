"""Conventions about a client's identity and weight that all layers share."""

# The id of a client that is not there: it keeps the size of a cohort constant
# and is ignored.
PADDING_CLIENT_ID = -1

# How client weights are to be read: as shares d_i of the population, which sum
# to 1 over all clients, or as numbers of examples n_i.
KNOWN = 'known'
EXAMPLES = 'examples'
CLIENT_WEIGHTINGS = (KNOWN, EXAMPLES)
