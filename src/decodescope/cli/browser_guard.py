"""Who may talk to the server of `serve`: the browser that was given the address that it printed."""

import secrets

from aiohttp import web
from aiohttp.typedefs import Handler

_OPEN_IT = "open the address that decodescope serve printed"
_NO_OTHER_PAGE = "only pages of this server may connect"
# What a browser says of a request that the user made, or a page of this server.
_OWN_SITE = (None, "same-origin", "none")


class Guard:
    """The rules for requests to `HOST:port`.

    The printed address holds `token`, as that of a Jupyter server does. Who opens it gets a
    session, a cookie of the browser; all else needs one. A browser lets any page connect to this
    machine, so requests must also name this server as host, and as origin if they have one.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(18)
        self._hosts = {f"{host}:{port}", f"localhost:{port}"}
        self._origins = {None, *(f"http://{each}" for each in self._hosts)}
        self._cookie = f"decodescope-{port}"
        self._sessions: set[str] = set()
        sockets = " ".join(f"ws://{each}" for each in sorted(self._hosts))
        # xterm.js adds its own style elements.
        self._policy = (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
            f"font-src 'self'; img-src 'self' data:; connect-src 'self' {sockets}; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )

    def begin_session(self, token: str) -> web.Response:
        """A redirect to the page, with a new session, for who knows the token.

        Raises:
            HTTPForbidden: the token is another one.
        """
        if not secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            raise web.HTTPForbidden(text=_OPEN_IT)
        session = secrets.token_urlsafe(18)
        self._sessions.add(session)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(self._cookie, session, httponly=True, samesite="Strict", path="/")
        return answer

    def session(self, request: web.Request) -> str | None:
        """The session of a request, None if it has none that was begun here."""
        session = request.cookies.get(self._cookie, "")
        return session if session in self._sessions else None

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses what other pages and who has no session ask for."""
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        if request.host not in self._hosts or origin not in self._origins:
            raise web.HTTPForbidden(text=_NO_OTHER_PAGE)
        if site not in _OWN_SITE:
            raise web.HTTPForbidden(text=f"{_NO_OTHER_PAGE}; type the address")
        begins = request.path == "/" and "token" in request.query
        if not begins and self.session(request) is None:
            raise web.HTTPForbidden(text=_OPEN_IT)
        return await handler(request)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say to the browser what the page may do, on every response."""
        response.headers.update(
            {
                "Content-Security-Policy": self._policy,
                "X-Frame-Options": "DENY",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cache-Control": "no-store",
            }
        )
