"""Live transport: lines of the clan in a Yjs document, over WebSocket. It only carries them; files keep them."""
