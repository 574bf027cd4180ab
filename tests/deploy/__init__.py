"""What is deployed around the server: composition, alerts and dashboards."""
