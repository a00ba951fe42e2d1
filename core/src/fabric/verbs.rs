//! InfiniBand, RoCE and iWARP through librdmacm and libibverbs.
