"""The ledger on a page: legend, table and readout of the linked figures, in one component."""
