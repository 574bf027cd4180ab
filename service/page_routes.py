"""The routes of the page: one for each of its files.

Knows HTTP; which files there are and what they are sent with is known to `service.page`.
Always: they need no key, since they hold nothing of anyone; what the page shows it asks for through the other routes.
"""

from fastapi import APIRouter, Request, Response

from service.page import FILES, HEADERS, is_known

router = APIRouter()


async def _file(request: Request) -> Response:
    file = FILES[request.url.path]
    headers = {**HEADERS, "etag": file.etag}
    if is_known(request.headers.get("if-none-match"), file):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


for path in FILES:
    router.add_api_route(path, _file, methods=["GET"], include_in_schema=False)
