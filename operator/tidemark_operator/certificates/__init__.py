"""Certificates of the operator's own: who may speak to whom between operator, planner and replicas.

authority ──signs──► the operator's   (memory)              says: tidemark://operator
          ──signs──► the planner's    (Secret, or files)    says: tidemark://planner
          ──signs──► each replica's   (Secret, or files)    says: tidemark://replica/NAMESPACE/NAME/UID
"""
