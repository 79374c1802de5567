"""The Explore page: its view, the machines over time, an instant, a node, a job."""
