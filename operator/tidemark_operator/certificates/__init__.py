"""The operator's own certificates: mutual authentication of operator, planner and replicas.

    authority ──signs──► the operator's   (memory)              URI tidemark://operator
              ──signs──► the planner's    (Secret, or files)    URI tidemark://planner
              ──signs──► each replica's   (Secret, or files)    URI tidemark://replica/NAMESPACE/NAME/UID

module                  what it has
issue                   making certificates and reading them; when one must be renewed
authority               the authority, and the steps by which a new one replaces it
certificate_state       the files of one holder, and what they should be
certificate_rotation    keeps every holder's files up to date, and takes the authority's steps
store, secrets, files   where files are stored: the interface, Kubernetes Secrets, folders
names                   the names of Secrets and the mount path
peers, tls_peers        what the rest of the operator calls: without TLS, with TLS
channel_factory         gRPC channels to peers
diagnosis               why a peer's certificate is not accepted
"""
