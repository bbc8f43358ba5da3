"""The kopf operator: resources, compute controller, orchestrators, gateway. No JVM, no data access."""
