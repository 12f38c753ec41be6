"""Harbor tasks on disk: read, judged, their images found, and packed into bundles. Needs no Harbor."""
