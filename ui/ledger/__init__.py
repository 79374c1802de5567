"""The ledger on a page: legend, table and readout of the figures beside it, in one component."""
