"""`queryset.delete()` on models of the reference tables: Django collects what it deletes in Python, then goes by id.

Children are deleted by querysets of their own: where tables refer to each other Django finds no order by itself, and
RESTRICT stops it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict

from bench.contenders import BatchDone, Task

settings.configure(USE_TZ=True, INSTALLED_APPS=[], DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
django.setup()


def _model(name: str, table: str, **fields: object) -> Any:
    meta = type("Meta", (), {"app_label": "bench", "db_table": table.replace(".", '"."')})
    key = models.UUIDField(primary_key=True)
    return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, "id": key, **fields})


Session = _model(
    "Session",
    "user_activity.sessions",
    user_id=models.UUIDField(null=True),
    anonymous_id=models.UUIDField(null=True),
    status=models.TextField(),
    started_at=models.DateTimeField(),
    last_activity_at=models.DateTimeField(),
    ended_at=models.DateTimeField(null=True),
    user_agent=models.TextField(null=True),
    created_at=models.DateTimeField(),
)
View = _model(
    "View",
    "user_activity.property_object_views",
    session=models.ForeignKey(Session, models.CASCADE),
    property_object_id=models.UUIDField(),
    apply_filter_event=models.ForeignKey("Event", models.SET_NULL, null=True),
    started_at=models.DateTimeField(),
    ended_at=models.DateTimeField(null=True),
)
Event = _model(
    "Event",
    "user_activity.action_events",
    session=models.ForeignKey(Session, models.CASCADE),
    event_type=models.TextField(),
    property_object_view=models.ForeignKey(View, models.SET_NULL, null=True),
    occurred_at=models.DateTimeField(),
    payload=models.JSONField(null=True),
)
Favorite = _model(
    "Favorite",
    "favorites.favorites",
    user_id=models.UUIDField(null=True),
    anonymous_id=models.UUIDField(null=True),
    property_object_id=models.UUIDField(),
    note=models.TextField(null=True),
    created_at=models.DateTimeField(),
    updated_at=models.DateTimeField(),
)


def delete(task: Task, batch_done: BatchDone) -> None:
    """Until a batch is empty."""
    words = conninfo_to_dict(task.dsn)
    connection.settings_dict |= {
        "NAME": words["dbname"],
        "USER": words["user"],
        "PASSWORD": words["password"],
        "HOST": words["host"],
        "PORT": words["port"],
    }
    cutoff = timezone.now() - timedelta(days=365)
    if task.tables.children:
        oldest = Session.objects.filter(status="Inactive", ended_at__lt=cutoff).order_by("ended_at")
    else:
        oldest = Favorite.objects.filter(user_id=None, updated_at__lt=cutoff).order_by("updated_at")
    batch = oldest.values_list("id", flat=True)[: task.batch_size].select_for_update(skip_locked=True)
    ids = [None]
    while ids:
        with transaction.atomic():
            ids = list(batch.all())
            if task.tables.children:
                Event.objects.filter(session__in=ids).delete()
                View.objects.filter(session__in=ids).delete()
            oldest.model.objects.filter(id__in=ids).delete()
        batch_done()
