"""The replica: a Spark application that hydrates dataflows once and then maintains them."""
