"""Forms that edit the scenario: cluster, policies, performance model, run settings."""
