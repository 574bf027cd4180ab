"""The routes of the page.

Knows HTTP; which files there are and what they are sent with is known to `service.page`.
Always: they need no key, since they hold nothing of anyone; what the page shows it asks for through the other routes.
"""

from fastapi import APIRouter, Request, Response

from service.errors import NotFound
from service.page import FILES, HEADERS, is_known

router = APIRouter()


@router.get("/", include_in_schema=False)
@router.get("/ui/{name:path}", include_in_schema=False)
async def page_file(request: Request) -> Response:
    """A file of the page. One path for all, so that they are one series of the metrics."""
    file = FILES.get(request.url.path)
    if file is None:
        raise NotFound("there is no such route")
    headers = {**HEADERS, "etag": file.etag}
    if is_known(request.headers.get("if-none-match"), file):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
