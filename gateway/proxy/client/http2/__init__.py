"""HTTP/2 with clients (RFC 9113): frames in and out, and a request for each stream."""
